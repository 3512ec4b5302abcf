#include "gpu/ops/project.h"

#include <algorithm>

#include "base/error.h"
#include "gpu/ops/project_tiles.h"
#include "gpu/wgsl/project.h"
#include "gpu/wgsl/project_norm.h"

namespace doppler::gpu {
namespace {

constexpr uint64_t kMaxTurns = 8;  // of ops/project_norm.wgsl

Tiles epilogue_tiles(const Capabilities& capabilities, const MatvecShape& shape, const Epilogue& epilogue) {
  if (epilogue.int8) return piece_tiles(capabilities, shape.cols);
  return project_tiles(capabilities, shape.rows, shape.cols, epilogue.activation.has_value());
}

// The fields that project.wgsl and project_norm.wgsl share.
template <class Params>
Params common_params(const Weight& weight, const WeightPart& part, const Epilogue& epilogue) {
  Params p{};
  p.cols = static_cast<uint32_t>(weight.cols);
  p.pieces = static_cast<uint32_t>(pieces_of(static_cast<uint64_t>(weight.cols)));
  p.stride = static_cast<uint32_t>(weight.stride / 16);
  p.rows = static_cast<uint32_t>(part.rows);
  p.first_row = epilogue.first_row + static_cast<uint32_t>(part.first_row);
  p.bias = epilogue.bias.buffer ? 1u : 0u;
  p.softcap = epilogue.softcap;
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

Prepared prepare(const Capabilities& capabilities, const Weight& weight, const Epilogue& epilogue) {
  const MatvecShape shape{weight.dtype, static_cast<uint64_t>(weight.rows), static_cast<uint64_t>(weight.cols), false,
                          weight.second.has_value()};
  const Tiles tiles = epilogue_tiles(capabilities, shape, epilogue);
  return {choose_project(capabilities, shape, epilogue), tiles.rows_per_workgroup(), turns_of(shape.cols, tiles)};
}

}  // namespace

bool can_project(const Capabilities& capabilities, const MatvecShape& shape) {
  const Tiles t = epilogue_tiles(capabilities, shape, {});
  const bool int8 = capabilities.int8_dot && takes_int8(shape.dtype);
  return shape.cols % 4 == 0 && project_workgroup_bytes(shape.cols, int8, t) <= capabilities.limits.workgroup_bytes;
}

Variant choose_project(const Capabilities& capabilities, const MatvecShape& shape, const Epilogue& epilogue) {
  const bool int8 = capabilities.int8_dot && takes_int8(shape.dtype);
  const Tiles t = epilogue_tiles(capabilities, shape, epilogue);
  const std::string dtype(shape.mixed ? "q4_k_q6_k" : kernel_name(shape.dtype));
  double glu = 0;
  if (epilogue.activation) {
    if (*epilogue.activation == Activation::kClampedSwiglu) {
      fail({.code = ErrorCode::kInternal, .what = "this activation is not fused", .where = "project"});
    }
    glu = *epilogue.activation == Activation::kGeluTanh ? 1 : 2;
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
           {"max_pieces", static_cast<double>(pieces_of(shape.cols))}}};
}

void record_project(Recording& recording, const std::string& step, const Weight& weight, const BoundBuffer& x,
                    const Epilogue& epilogue, const BoundBuffer& y) {
  const Capabilities& capabilities = recording.device().capabilities();
  Prepared prepared = prepare(capabilities, weight, epilogue);
  prepared.variant.constants.emplace_back("turns", static_cast<double>(prepared.turns));
  for (const WeightPart& part : weight.parts) {
    recording.dispatch<wgsl::Project>(
        step, prepared.variant, common_params<wgsl::Project::Params>(weight, part, epilogue),
        {.x = x,
         .w2 = bound_rows(weight, part),
         .w4 = bound_rows(weight, part),
         .bias = epilogue.bias.buffer ? epilogue.bias : x,
         .y = y},
        linear_grid(div_up(static_cast<uint64_t>(part.rows), prepared.rows_per_workgroup), capabilities.limits));
  }
}

bool can_project_stored(const Capabilities& capabilities, const MatvecShape& shape) {
  return capabilities.int8_dot && takes_int8(shape.dtype) && !shape.mixed && shape.cols % kPiece == 0;
}

void record_project_stored(Recording& recording, const std::string& step, const Weight& weight, const BoundBuffer& x,
                           const Epilogue& epilogue, const BoundBuffer& y) {
  const Capabilities& capabilities = recording.device().capabilities();
  Prepared prepared = prepare(capabilities, weight, epilogue);
  for (auto& [snippet, choice] : prepared.variant.snippets) {
    if (snippet == "x") choice = "stored";
  }
  for (const WeightPart& part : weight.parts) {
    recording.dispatch<wgsl::ProjectStored>(
        step, prepared.variant, common_params<wgsl::ProjectStored::Params>(weight, part, epilogue),
        {.x = x,
         .w2 = bound_rows(weight, part),
         .w4 = bound_rows(weight, part),
         .bias = epilogue.bias.buffer ? epilogue.bias : x,
         .y = y},
        linear_grid(div_up(static_cast<uint64_t>(part.rows), prepared.rows_per_workgroup), capabilities.limits));
  }
}

void record_project_norm(Recording& recording, const std::string& step, const Weight& weight, const ResidualNorm& input,
                         const Epilogue& epilogue, const BoundBuffer& y) {
  const Capabilities& capabilities = recording.device().capabilities();
  Prepared prepared = prepare(capabilities, weight, epilogue);
  const uint32_t subgroup = one_subgroup_size(capabilities);
  const bool wide = one_subgroup_size(capabilities) >= 8;
  prepared.variant.snippets.emplace_back("project_out", epilogue.best    ? "best"
                                                        : !epilogue.int8 ? "plain"
                                                        : wide           ? "int8_wide"
                                                                         : "int8");
  prepared.variant.snippets.emplace_back("group_sum", subgroup ? "subgroup" : "plain");
  prepared.variant.constants.emplace_back("subgroup", std::max(1u, subgroup));
  prepared.variant.constants.emplace_back("turns", static_cast<double>(prepared.turns));
  if (prepared.turns > kMaxTurns) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "a norm this wide is not fused on this device",
          .where = step,
          .got = std::to_string(weight.cols),
          .todo = "Use --backend cpu"});
  }
  bool store = input.keep;
  uint32_t pair = epilogue.first_pair;
  for (const WeightPart& part : weight.parts) {
    auto params = common_params<wgsl::ProjectNorm::Params>(weight, part, epilogue);
    params.eps = input.eps;
    params.offset = input.offset;
    params.branch = !input.branch.buffer ? 0u : input.branch_norm ? 2u : 1u;
    params.store = store ? 1u : 0u;
    params.first_pair = pair;
    params.branch_scale = input.branch_scale;
    params.scale = epilogue.scale;
    const uint32_t workgroups = div_up(static_cast<uint64_t>(part.rows), prepared.rows_per_workgroup);
    recording.dispatch<wgsl::ProjectNorm>(step, prepared.variant, params,
                                          {.x = input.x,
                                           .branch = input.branch.buffer ? input.branch : input.x,
                                           .norms = input.norms,
                                           .w2 = bound_rows(weight, part),
                                           .w4 = bound_rows(weight, part),
                                           .bias = epilogue.bias.buffer ? epilogue.bias : input.x,
                                           .y = y,
                                           .r = input.r},
                                          linear_grid(workgroups, capabilities.limits));
    store = false;  // once is enough
    pair += workgroups;
  }
}

uint32_t best_pairs(const Capabilities& capabilities, const Weight& weight) {
  const uint64_t rows = prepare(capabilities, weight, {}).rows_per_workgroup;
  uint32_t pairs = 0;
  for (const WeightPart& part : weight.parts) pairs += div_up(static_cast<uint64_t>(part.rows), rows);
  return pairs;
}

void record_project_merge(Recording& recording, const std::string& step, const Weight& weight,
                          const SplitAttention& input, const Epilogue& epilogue, const BoundBuffer& y) {
  const Capabilities& capabilities = recording.device().capabilities();
  Prepared prepared = prepare(capabilities, weight, epilogue);
  for (const WeightPart& part : weight.parts) {
    auto params = common_params<wgsl::ProjectMerge::Params>(weight, part, epilogue);
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
         .bias = epilogue.bias.buffer ? epilogue.bias : input.partials,
         .y = y},
        linear_grid(div_up(static_cast<uint64_t>(part.rows), prepared.rows_per_workgroup), capabilities.limits));
  }
}

}  // namespace doppler::gpu
