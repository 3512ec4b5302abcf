#include "gpu/project.h"

#include <algorithm>

#include "base/error.h"
#include "gpu/wgsl/project.h"
#include "gpu/wgsl/project_merge.h"
#include "gpu/wgsl/project_norm.h"
#include "gpu/wgsl/project_stored.h"

namespace doppler::gpu {
namespace {

constexpr uint64_t kMostThreads = 448, kFewThreads = 256;
constexpr uint64_t kInt8Threads = 512;      // where results are left as int8, by whole pieces
constexpr uint64_t kMostTurns = 8;          // of kernels/project_norm.wgsl
constexpr uint64_t kMultiprocessors = 132;  // of a large GPU: so many workgroups keep all of it busy
constexpr uint64_t kMostLanes = 32;

uint64_t pieces_of(uint64_t cols) { return std::max<uint32_t>(1, div_up(cols, kPiece)); }

// The one size that all subgroups have; 0 where they differ or there are none.
uint32_t one_subgroup_size(const Capabilities& capabilities) {
  const bool one = capabilities.subgroups && capabilities.subgroup_min == capabilities.subgroup_max;
  return one && capabilities.subgroup_min >= 4 ? capabilities.subgroup_min : 0;
}

// The constants of lib/project.wgsl.
struct Tiles {
  uint64_t lanes, groups, rows, bands, steps;

  uint64_t threads() const { return lanes * groups; }
  uint64_t rows_per_workgroup() const { return groups * rows * bands; }
};

// As many threads a row as leave few of them idle.
uint64_t lanes_for(uint64_t pieces, uint32_t subgroup) {
  uint64_t best = 4;
  double best_used = 0;
  for (uint64_t lanes = subgroup ? std::min<uint64_t>(subgroup, kMostLanes) : kMostLanes; lanes >= 4; lanes /= 2) {
    const double used = static_cast<double>(pieces) / static_cast<double>(div_up(pieces, lanes) * lanes);
    if (used > best_used) {
      best = lanes;
      best_used = used;
    }
    if (used >= 0.7) break;
  }
  return best;
}

uint64_t steps_of(uint64_t pieces, const Tiles& t) { return div_up(div_up(pieces, t.lanes), 4 / t.rows); }

// A workgroup makes results by the piece.
Tiles int8_tiles(const Capabilities& capabilities, uint64_t pieces) {
  Tiles t{lanes_for(pieces, one_subgroup_size(capabilities)), 1, 2, 1, 1};
  t.groups = std::min<uint64_t>(capabilities.limits.invocations, kInt8Threads) / t.lanes;
  if (t.groups * t.rows < 2 * kPiece) t.rows = 4;
  while (t.rows_per_workgroup() % (2 * kPiece) != 0) t.bands *= 2;
  t.steps = steps_of(pieces, t);
  return t;
}

Tiles tiles_for(const Capabilities& capabilities, const MatvecShape& shape, const Finish& finish) {
  const uint64_t pieces = pieces_of(shape.cols), quads = 8 * pieces;
  if (finish.int8) return int8_tiles(capabilities, pieces);
  const uint64_t most = std::min<uint64_t>(capabilities.limits.invocations, kMostThreads);
  Tiles t{lanes_for(pieces, one_subgroup_size(capabilities)), 1, 1, 1, 1};
  t.groups = most / t.lanes;
  const auto workgroups = [&] { return div_up(shape.rows, t.rows_per_workgroup()); };
  // Several rows a team share what is read of x, as long as every multiprocessor has a workgroup; but a workgroup that
  // makes one turn only is done sooner if all its weights are asked for at the start, which two steps are.
  for (const uint64_t rows : {4u, 2u}) {
    t.rows = rows;
    const bool many = workgroups() > 2 * kMultiprocessors;
    if (workgroups() * 10 >= kMultiprocessors * 9 && (many || steps_of(pieces, t) <= 2)) break;
    t.rows = 1;
  }
  if (finish.activation) t.rows = std::max<uint64_t>(t.rows, 2);  // gate and up of one output in one team
  // Fewer threads make more workgroups; each must still make the norm and the int8 form of x, at best in one turn.
  const uint64_t few = std::min(most, quads <= most ? std::max(quads, kFewThreads) : kFewThreads);
  while (workgroups() * 10 < kMultiprocessors * 9 && (t.groups - 1) * t.lanes >= few) --t.groups;
  while (t.groups > 1 && t.threads() % 8 != 0) --t.groups;  // threads that put a piece's quads must be neighbours
  // Very many rows: as many workgroups as multiprocessors, each of which makes its x once and goes on.
  if (workgroups() > 2 * kMultiprocessors) t.bands = div_up(workgroups(), kMultiprocessors);
  t.steps = steps_of(pieces, t);
  return t;
}

uint64_t turns_of(const MatvecShape& shape, const Tiles& t) { return div_up(8 * pieces_of(shape.cols), t.threads()); }

// The fields that project.wgsl and project_norm.wgsl share.
template <class Params>
Params common_params(const Weight& weight, const WeightPart& part, const Finish& finish) {
  Params p{};
  p.cols = static_cast<uint32_t>(weight.cols);
  p.pieces = static_cast<uint32_t>(pieces_of(static_cast<uint64_t>(weight.cols)));
  p.stride = static_cast<uint32_t>(weight.stride / 16);
  p.rows = static_cast<uint32_t>(part.rows);
  p.first_row = finish.first_row + static_cast<uint32_t>(part.first_row);
  p.bias = finish.bias.buffer ? 1u : 0u;
  p.softcap = finish.softcap;
  p.second_row = static_cast<uint32_t>(part.rows);
  if (weight.second) {
    p.second_row = static_cast<uint32_t>(weight.second->first_row);
    p.second_at = static_cast<uint32_t>(weight.second->offset / 16);
    p.second_stride = static_cast<uint32_t>(weight.second->stride / 16);
  }
  return p;
}

BoundBuffer bound_rows(const Weight& weight, const WeightPart& part) {
  return weight.second ? BoundBuffer(part.buffer) : part.bound(weight.stride);  // such a weight has one part
}

struct Prepared {
  Variant variant;
  uint64_t rows_per_workgroup, turns;
};

Prepared prepare(const Capabilities& capabilities, const Weight& weight, const Finish& finish) {
  const MatvecShape shape{weight.dtype, static_cast<uint64_t>(weight.rows), static_cast<uint64_t>(weight.cols), false,
                          weight.second.has_value()};
  const Tiles tiles = tiles_for(capabilities, shape, finish);
  return {choose_project(capabilities, shape, finish), tiles.rows_per_workgroup(), turns_of(shape, tiles)};
}

// Workgroup memory: x (lib/x.*.wgsl), the sums of teams and of the workgroup.
uint64_t workgroup_bytes(uint64_t pieces, bool int8, const Tiles& t) {
  return pieces * (128 + (int8 ? 48 : 0)) + t.threads() * (16 + 8) + 256;
}

}  // namespace

bool can_project(const Capabilities& capabilities, const MatvecShape& shape) {
  const Tiles t = tiles_for(capabilities, shape, {});
  const bool int8 = capabilities.int8_dot && takes_int8(shape.dtype);
  return shape.cols % 4 == 0 && workgroup_bytes(pieces_of(shape.cols), int8, t) <= capabilities.limits.workgroup_bytes;
}

Variant choose_project(const Capabilities& capabilities, const MatvecShape& shape, const Finish& finish) {
  const bool int8 = capabilities.int8_dot && takes_int8(shape.dtype);
  const Tiles t = tiles_for(capabilities, shape, finish);
  const std::string dtype(shape.mixed ? "q4_k_q6_k" : kernel_name(shape.dtype));
  double glu = 0;
  if (finish.activation) {
    if (*finish.activation == Activation::kClampedSwiglu) {
      fail({ErrorCode::kInternal, "this activation is not fused", "project", "", "", ""});
    }
    glu = *finish.activation == Activation::kGeluTanh ? 1 : 2;
  }
  const bool wide = int8 && one_subgroup_size(capabilities) >= 8 && t.threads() % 8 == 0;
  return {{{"weights", dtype},
           {"x", wide   ? "int8_wide"
                 : int8 ? "int8"
                        : "float"},
           {"int_dots", int8 ? dtype : "none"},
           {"team_sum", one_subgroup_size(capabilities) ? "subgroup" : "plain"}},
          {{"lanes", static_cast<double>(t.lanes)},
           {"groups", static_cast<double>(t.groups)},
           {"rows", static_cast<double>(t.rows)},
           {"bands", static_cast<double>(t.bands)},
           {"steps", static_cast<double>(t.steps)},
           {"glu", glu},
           {"most_pieces", static_cast<double>(pieces_of(shape.cols))}}};
}

void record_project(Recording& recording, const std::string& step, const Weight& weight, const BoundBuffer& x,
                    const Finish& finish, const BoundBuffer& y) {
  const Capabilities& capabilities = recording.device().capabilities();
  Prepared prepared = prepare(capabilities, weight, finish);
  prepared.variant.constants.emplace_back("turns", static_cast<double>(prepared.turns));
  for (const WeightPart& part : weight.parts) {
    recording.dispatch<wgsl::Project>(
        step, prepared.variant, common_params<wgsl::Project::Params>(weight, part, finish),
        {.x = x,
         .w2 = bound_rows(weight, part),
         .w4 = bound_rows(weight, part),
         .bias = finish.bias.buffer ? finish.bias : x,
         .y = y},
        linear_grid(div_up(static_cast<uint64_t>(part.rows), prepared.rows_per_workgroup), capabilities.limits));
  }
}

bool can_project_stored(const Capabilities& capabilities, const MatvecShape& shape) {
  return capabilities.int8_dot && takes_int8(shape.dtype) && !shape.mixed && shape.cols % kPiece == 0;
}

void record_project_stored(Recording& recording, const std::string& step, const Weight& weight, const BoundBuffer& x,
                           const Finish& finish, const BoundBuffer& y) {
  const Capabilities& capabilities = recording.device().capabilities();
  Prepared prepared = prepare(capabilities, weight, finish);
  for (auto& [slot, choice] : prepared.variant.slots) {
    if (slot == "x") choice = "stored";
  }
  for (const WeightPart& part : weight.parts) {
    recording.dispatch<wgsl::ProjectStored>(
        step, prepared.variant, common_params<wgsl::ProjectStored::Params>(weight, part, finish),
        {.x = x,
         .w2 = bound_rows(weight, part),
         .w4 = bound_rows(weight, part),
         .bias = finish.bias.buffer ? finish.bias : x,
         .y = y},
        linear_grid(div_up(static_cast<uint64_t>(part.rows), prepared.rows_per_workgroup), capabilities.limits));
  }
}

void record_project_norm(Recording& recording, const std::string& step, const Weight& weight, const ResidualNorm& input,
                         const Finish& finish, const BoundBuffer& y) {
  const Capabilities& capabilities = recording.device().capabilities();
  Prepared prepared = prepare(capabilities, weight, finish);
  const uint32_t subgroup = one_subgroup_size(capabilities);
  prepared.variant.slots.emplace_back("project_out", finish.int8 ? "int8" : "plain");
  prepared.variant.slots.emplace_back("group_sum", subgroup ? "subgroup" : "plain");
  prepared.variant.constants.emplace_back("subgroup", std::max(1u, subgroup));
  prepared.variant.constants.emplace_back("turns", static_cast<double>(prepared.turns));
  if (prepared.turns > kMostTurns) {
    fail({ErrorCode::kUnsupported, "a norm this wide is not fused on this device", step, "",
          std::to_string(weight.cols), "Use --backend cpu"});
  }
  bool store = input.keep;
  for (const WeightPart& part : weight.parts) {
    auto params = common_params<wgsl::ProjectNorm::Params>(weight, part, finish);
    params.eps = input.eps;
    params.offset = input.offset;
    params.branch = !input.branch.buffer ? 0u : input.branch_norm ? 2u : 1u;
    params.store = store ? 1u : 0u;
    recording.dispatch<wgsl::ProjectNorm>(
        step, prepared.variant, params,
        {.x = input.x,
         .branch = input.branch.buffer ? input.branch : input.x,
         .norms = input.norms,
         .w2 = bound_rows(weight, part),
         .w4 = bound_rows(weight, part),
         .bias = finish.bias.buffer ? finish.bias : input.x,
         .y = y,
         .r = input.r},
        linear_grid(div_up(static_cast<uint64_t>(part.rows), prepared.rows_per_workgroup), capabilities.limits));
    store = false;  // once is enough
  }
}

void record_project_merge(Recording& recording, const std::string& step, const Weight& weight,
                          const SplitAttention& input, const Finish& finish, const BoundBuffer& y) {
  const Capabilities& capabilities = recording.device().capabilities();
  Prepared prepared = prepare(capabilities, weight, finish);
  for (const WeightPart& part : weight.parts) {
    auto params = common_params<wgsl::ProjectMerge::Params>(weight, part, finish);
    params.heads = input.shape.heads;
    params.head_dim = input.shape.head_dim;
    params.splits = input.splits;
    params.window = input.shape.window;
    recording.dispatch<wgsl::ProjectMerge>(
        step, prepared.variant, params,
        {.state = input.state,
         .partials = input.partials,
         .w2 = bound_rows(weight, part),
         .w4 = bound_rows(weight, part),
         .bias = finish.bias.buffer ? finish.bias : input.partials,
         .y = y},
        linear_grid(div_up(static_cast<uint64_t>(part.rows), prepared.rows_per_workgroup), capabilities.limits));
  }
}

}  // namespace doppler::gpu
