#include "gpu/project.h"

#include <algorithm>

#include "base/error.h"
#include "gpu/wgsl/project.h"
#include "gpu/wgsl/project_merge.h"
#include "gpu/wgsl/project_norm.h"

namespace doppler::gpu {
namespace {

constexpr uint64_t kMostThreads = 448;
constexpr uint64_t kMostTurns = 8;           // of kernels/project_norm.wgsl
constexpr uint64_t kEnoughWorkgroups = 128;  // one for every multiprocessor of a large GPU

uint64_t pieces_of(uint64_t cols) { return std::max<uint32_t>(1, div_up(cols, kPiece)); }

// Bytes of workgroup memory that x takes (lib/x.*.wgsl), with room for the sums.
uint64_t x_bytes(uint64_t pieces, bool int8) { return pieces * (128 + (int8 ? 48 : 0)); }

struct Tiles {
  uint64_t lanes, groups, rows, split;
};

Tiles tiles_for(const Capabilities& capabilities, const MatvecShape& shape, const Finish& finish) {
  const uint64_t pieces = pieces_of(shape.cols);
  const uint64_t threads = std::min<uint64_t>(capabilities.limits.invocations, kMostThreads);
  Tiles t{div_up(pieces, div_up(pieces, threads)), 1, 1, 1};
  // Eight teams make a thread of every quad of x: the norm and the int8 form of x then take one turn.
  t.groups = std::clamp<uint64_t>(threads / t.lanes, 1, 8);
  // Threads that put a piece's quads must be neighbours: a multiple of eight of them, whatever the lanes.
  while (t.groups > 1 && t.lanes * t.groups % 8 != 0) --t.groups;
  // The first four rows of a thread are on their way while x is made; more only where there are workgroups to spare.
  for (const uint64_t rows : {2u, 4u, 8u, 16u}) {
    const uint64_t enough = rows <= 4 ? kEnoughWorkgroups : 8 * kEnoughWorkgroups;
    if (shape.rows / (t.groups * rows) >= enough) t.rows = rows;
  }
  if (finish.activation && t.groups * t.rows % 2 != 0) t.rows = 2;  // gate and up of one output in one workgroup
  while (t.split * 2 * t.rows <= t.lanes && t.split * t.split < t.lanes) t.split *= 2;
  return t;
}

uint64_t turns_of(const MatvecShape& shape, const Tiles& t) {
  return div_up(8 * pieces_of(shape.cols), t.lanes * t.groups);
}

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
  return p;
}

struct Prepared {
  Variant variant;
  uint64_t rows_per_workgroup, turns;
};

Prepared prepare(const Capabilities& capabilities, const Weight& weight, const Finish& finish) {
  const MatvecShape shape{weight.dtype, static_cast<uint64_t>(weight.rows), static_cast<uint64_t>(weight.cols)};
  const Tiles tiles = tiles_for(capabilities, shape, finish);
  return {choose_project(capabilities, shape, finish), tiles.groups * tiles.rows, turns_of(shape, tiles)};
}

// The one size that all subgroups have; 0 where they differ or there are none.
uint32_t one_subgroup_size(const Capabilities& capabilities) {
  return capabilities.subgroups && capabilities.subgroup_min == capabilities.subgroup_max ? capabilities.subgroup_min
                                                                                          : 0;
}

// Workgroup memory: x, the partial sums of the rows, the sums over the workgroup. (lib/x.*.wgsl, lib/project.wgsl)
uint64_t workgroup_bytes(uint64_t pieces, bool int8, const Tiles& t) {
  const uint64_t threads = t.lanes * t.groups;
  return x_bytes(pieces, int8) + 4 * (threads * t.rows + t.split * t.groups * t.rows + 2 * threads + 64);
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
  const std::string dtype(kernel_name(shape.dtype));
  double glu = 0;
  if (finish.activation) {
    if (*finish.activation == Activation::kClampedSwiglu) {
      fail({ErrorCode::kInternal, "this activation is not fused", "project", "", "", ""});
    }
    glu = *finish.activation == Activation::kGeluTanh ? 1 : 2;
  }
  const bool wide = int8 && one_subgroup_size(capabilities) >= 8 && t.lanes * t.groups % 8 == 0;
  return {{{"weights", dtype},
           {"x", wide   ? "int8_wide"
                 : int8 ? "int8"
                        : "float"},
           {"int_dots", int8 ? dtype : "none"}},
          {{"lanes", static_cast<double>(t.lanes)},
           {"groups", static_cast<double>(t.groups)},
           {"rows", static_cast<double>(t.rows)},
           {"split", static_cast<double>(t.split)},
           {"glu", glu},
           {"most_pieces", static_cast<double>(pieces_of(shape.cols))}}};
}

void record_project(Recording& recording, const std::string& step, const Weight& weight, const BoundBuffer& x,
                    const Finish& finish, const BoundBuffer& y) {
  const Capabilities& capabilities = recording.device().capabilities();
  const Prepared prepared = prepare(capabilities, weight, finish);
  for (const WeightPart& part : weight.parts) {
    recording.dispatch<wgsl::Project>(
        step, prepared.variant, common_params<wgsl::Project::Params>(weight, part, finish),
        {.x = x,
         .w = part.bound(weight.stride),
         .w4 = part.bound(weight.stride),
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
  prepared.variant.slots.emplace_back("group_sum", subgroup >= 4 ? "subgroup" : "plain");
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
         .w = part.bound(weight.stride),
         .w4 = part.bound(weight.stride),
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
  prepared.variant.constants.emplace_back("merge_slots", input.shape.heads * input.splits);
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
         .w = part.bound(weight.stride),
         .w4 = part.bound(weight.stride),
         .bias = finish.bias.buffer ? finish.bias : input.partials,
         .y = y},
        linear_grid(div_up(static_cast<uint64_t>(part.rows), prepared.rows_per_workgroup), capabilities.limits));
  }
}

}  // namespace doppler::gpu
