#include "gpu/ops/project.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "gpu/ops/project_tiles.h"
#include "gpu/wgsl/project.h"
#include "gpu/wgsl/project_batch.h"
#include "gpu/wgsl/project_norm.h"

namespace doppler::gpu {
namespace {

constexpr uint64_t kMaxTurns = 8;                               // of ops/lib/residual_norm.wgsl
constexpr uint64_t kBatchThreads = 128, kFewBatchThreads = 64;  // small workgroups wait less for each other
constexpr uint32_t kQuantizeThreads = 64;

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
  const bool int8 = decodes_with_int8(capabilities, shape.dtype);
  return shape.cols % 4 == 0 && project_workgroup_bytes(shape.cols, int8, t) <= capabilities.limits.workgroup_bytes;
}

Variant choose_project(const Capabilities& capabilities, const MatvecShape& shape, const Epilogue& epilogue) {
  const bool int8 = decodes_with_int8(capabilities, shape.dtype);
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
  return decodes_with_int8(capabilities, shape.dtype) && !shape.mixed && shape.cols % kPiece == 0;
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

namespace {

bool is_int8(const Capabilities& capabilities, const Weight& weight) {
  return decodes_with_int8(capabilities, weight.dtype);
}

// What a team of threads of project_batch takes at a time (ops/lib/column_sums.wgsl).
struct BatchTile {
  const char* name;
  uint64_t rows, columns;
};
constexpr BatchTile kBatchTiles[] = {{"r8c8", 8, 8}, {"r4c8", 4, 8}, {"r4c4", 4, 4}, {"r4c2", 4, 2}};
constexpr uint64_t kEnoughWarps = 16 * kMultiprocessors;

struct BatchTiles {
  BatchTile tile;
  uint64_t lanes, groups;
  uint64_t rows() const { return groups * tile.rows; }
};

// Teams are those of one column. The largest tile that leaves enough of them to hide each other's waits; Q6_K has more
// to unpack, and eight of its rows no longer fit into a thread's registers beside their sums.
BatchTiles batch_tiles(const Capabilities& capabilities, const Weight& weight, uint32_t most) {
  const auto rows = static_cast<uint64_t>(weight.rows);
  const uint64_t lanes = piece_tiles(capabilities, static_cast<uint64_t>(weight.cols)).lanes;
  BatchTiles t{kBatchTiles[std::size(kBatchTiles) - 1], lanes, 1};
  for (const BatchTile& tile : kBatchTiles) {
    const uint64_t warps = div_up(rows, tile.rows) * div_up(most, tile.columns) * lanes / 32;
    if (tile.columns > std::max(2u, most) || warps < kEnoughWarps) continue;
    if (tile.rows > 4 && weight.dtype != DType::kQ4_K) continue;
    t.tile = tile;
    break;
  }
  t.groups = std::min<uint64_t>(kBatchThreads, capabilities.limits.invocations) / t.lanes;
  const auto workgroups = [&] { return div_up(rows, t.rows()) * div_up(most, t.tile.columns); };
  const auto bytes = [&] { return t.rows() * t.tile.columns * 4 + t.groups * t.lanes * 16 + 2048; };
  while (t.groups > 1 && (bytes() > capabilities.limits.workgroup_bytes ||
                          (t.groups * t.lanes > kFewBatchThreads && workgroups() < 2 * kMultiprocessors))) {
    t.groups /= 2;
  }
  return t;
}

// How x of a column is left.
Variant row_variant(const Capabilities& capabilities, const Weight& weight, uint64_t lanes, uint64_t groups) {
  const char* kind = is_int8(capabilities, weight) ? "int8" : "float";
  return {{{"x_piece", is_int8(capabilities, weight) ? "int8" : "none"}, {"x_row", kind}},
          {{"lanes", static_cast<double>(lanes)},
           {"groups", static_cast<double>(groups)},
           {"max_pieces", static_cast<double>(pieces_of(static_cast<uint64_t>(weight.cols)))}}};
}

}  // namespace

uint64_t batch_x_bytes(const Capabilities& capabilities, const Weight& weight) {
  const auto cols = static_cast<uint64_t>(weight.cols);
  return is_int8(capabilities, weight) ? pieces_of(cols) * 48 : cols * 4;
}

void record_batch_norm(Recording& recording, const std::string& step, const Weight& weight, const ResidualNorm& input,
                       const Epilogue& epilogue, const BatchColumns& columns, const BatchX& x) {
  const Capabilities& capabilities = recording.device().capabilities();
  const auto cols = static_cast<uint64_t>(weight.cols);
  const MatvecShape shape{weight.dtype, static_cast<uint64_t>(weight.rows), cols, false, weight.second.has_value()};
  const Tiles tiles = epilogue_tiles(capabilities, shape, epilogue);  // whose threads add up the norm's squares
  const uint32_t subgroup = one_subgroup_size(capabilities);
  Variant variant = row_variant(capabilities, weight, tiles.lanes, tiles.groups);
  variant.snippets.emplace_back("group_sum", subgroup ? "subgroup" : "plain");
  variant.constants.emplace_back("subgroup", std::max(1u, subgroup));
  variant.constants.emplace_back("turns", static_cast<double>(turns_of(cols, tiles)));
  recording.dispatch<wgsl::BatchNorm>(step, variant,
                                      {.cols = static_cast<uint32_t>(cols),
                                       .pieces = static_cast<uint32_t>(pieces_of(cols)),
                                       .eps = input.eps,
                                       .offset = input.offset,
                                       .branch = !input.branch.buffer ? 0u
                                                 : input.branch_norm  ? 2u
                                                                      : 1u,
                                       .store = input.keep ? 1u : 0u,
                                       .branch_scale = input.branch_scale,
                                       .scale = epilogue.scale,
                                       .last = columns.last},
                                      {.state = columns.state,
                                       .x = input.x,
                                       .branch = input.branch.buffer ? input.branch : input.x,
                                       .norms = input.norms,
                                       .r = input.r,
                                       .x_row = x.values,
                                       .norm_factors = x.factors},
                                      {columns.most, 1, 1});
}

void record_batch_merge(Recording& recording, const std::string& step, const Weight& weight,
                        const SplitAttention& input, const BatchColumns& columns, const BatchX& x) {
  const Capabilities& capabilities = recording.device().capabilities();
  const auto cols = static_cast<uint64_t>(weight.cols);
  recording.dispatch<wgsl::BatchMerge>(step, row_variant(capabilities, weight, 32, 8),
                                       {.cols = static_cast<uint32_t>(cols),
                                        .pieces = static_cast<uint32_t>(pieces_of(cols)),
                                        .heads = input.shape.heads,
                                        .head_dim = input.shape.head_dim,
                                        .splits = input.splits,
                                        .window = input.shape.window},
                                       {.state = columns.state, .partials = input.partials, .x_row = x.values},
                                       {columns.most, 1, 1});
}

BatchX record_batch_values(Recording& recording, const std::string& step, const Weight& weight,
                           const BoundBuffer& values, const BatchColumns& columns, const BatchX& x) {
  const Capabilities& capabilities = recording.device().capabilities();
  if (!is_int8(capabilities, weight)) return {values, {}};
  const auto cols = static_cast<uint64_t>(weight.cols);
  const uint64_t pieces = pieces_of(cols);
  recording.dispatch<wgsl::BatchQuantize>(
      step, {{{"x_piece", "int8"}}, {{"threads", kQuantizeThreads}}},
      {.cols = static_cast<uint32_t>(cols), .pieces = static_cast<uint32_t>(pieces)},
      {.state = columns.state, .values = values, .x_row = x.values},
      {div_up(pieces, kQuantizeThreads), columns.most, 1});
  return {x.values, {}};
}

void record_project_batch(Recording& recording, const std::string& step, const Weight& weight, const BatchX& x,
                          const Epilogue& epilogue, const BatchColumns& columns, uint32_t width, const BoundBuffer& y) {
  const Capabilities& capabilities = recording.device().capabilities();
  const MatvecShape shape{weight.dtype, static_cast<uint64_t>(weight.rows), static_cast<uint64_t>(weight.cols), false,
                          weight.second.has_value()};
  const BatchTiles tiles = batch_tiles(capabilities, weight, columns.most);
  const uint64_t pieces = pieces_of(shape.cols);
  Variant variant = choose_project(capabilities, shape, epilogue);
  std::erase_if(variant.snippets, [](const auto& snippet) { return snippet.first == "x"; });
  variant.snippets.emplace_back("x_batch", is_int8(capabilities, weight) ? "int8" : "float");
  variant.snippets.emplace_back("batch_out", epilogue.best ? "best" : "plain");
  variant.snippets.emplace_back("team_spread", one_subgroup_size(capabilities) ? "subgroup" : "plain");
  variant.snippets.emplace_back("column_sums", tiles.tile.name);
  const double glu = std::find_if(variant.constants.begin(), variant.constants.end(), [](const auto& constant) {
                       return constant.first == "glu";
                     })->second;
  variant.constants = {{"lanes", static_cast<double>(tiles.lanes)},
                       {"groups", static_cast<double>(tiles.groups)},
                       {"turns", static_cast<double>(div_up(pieces, tiles.lanes))},
                       {"glu", glu}};
  const uint32_t chunks = div_up(columns.most, tiles.tile.columns);
  uint32_t pair = epilogue.first_pair;
  for (const WeightPart& part : weight.parts) {
    auto params = common_params<wgsl::ProjectBatch::Params>(weight, part, epilogue);
    params.scaled = x.factors.buffer ? 1u : 0u;
    params.chunks = chunks;
    params.width = width;
    params.first_pair = pair;
    params.last = columns.last;
    const uint32_t workgroups = div_up(static_cast<uint64_t>(part.rows), tiles.rows());
    recording.dispatch<wgsl::ProjectBatch>(step, variant, params,
                                           {.state = columns.state,
                                            .x = x.values,
                                            .norm_factors = x.factors.buffer ? x.factors : columns.state,
                                            .w2 = bound_rows(weight, part),
                                            .w4 = bound_rows(weight, part),
                                            .bias = epilogue.bias.buffer ? epilogue.bias : columns.state,
                                            .y = y},
                                           linear_grid(uint64_t{workgroups} * chunks, capabilities.limits));
    pair += workgroups;
  }
}

uint32_t batch_pairs(const Capabilities& capabilities, const Weight& weight, const BatchColumns& columns) {
  const uint64_t rows = batch_tiles(capabilities, weight, columns.most).rows();
  uint32_t pairs = 0;
  for (const WeightPart& part : weight.parts) pairs += div_up(static_cast<uint64_t>(part.rows), rows);
  return pairs;
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
