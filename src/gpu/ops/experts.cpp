#include "gpu/ops/experts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "gpu/ops/elementwise.h"
#include "gpu/ops/project_tiles.h"
#include "gpu/wgsl/experts.h"
#include "gpu/wgsl/matmul_f32.h"
#include "gpu/wgsl/matmul_int8.h"
#include "gpu/wgsl/route.h"

namespace doppler::gpu {
namespace {

constexpr uint32_t kRouteThreads = 64, kCombineThreads = 256;
constexpr uint32_t kMinTileTokens = 8;  // of any tile there is

// Every expert may end with a tile that is not full.
uint64_t max_tiles(uint64_t entries, uint32_t experts, uint32_t tile_tokens) {
  return entries / tile_tokens + std::min<uint64_t>(experts, entries);
}

constexpr uint64_t kMaxTurns = 8;  // of ops/experts.wgsl
constexpr uint64_t kDownThreads = 128;

uint32_t u32(uint64_t value) { return static_cast<uint32_t>(value); }

// x as integers of 16 bits: what the weights are made for, and whole pieces.
bool takes_int16(const Capabilities& capabilities, const ExpertsShape& shape) {
  return capabilities.int8_dot && shape.dtype == DType::kMXFP4 && shape.ffn % kPiece == 0 &&
         !names_variant("float", wish_for(capabilities.kernels, "matvec"));
}

Tiles up_tiles(const Capabilities& capabilities, const ExpertsShape& shape) {
  const uint64_t rows = 2 * shape.ffn;
  if (!takes_int16(capabilities, shape)) return project_tiles(capabilities, shape.k * rows, shape.hidden, true);
  Tiles tiles = piece_tiles(capabilities, shape.hidden);
  const uint64_t bands = tiles.bands;
  // A workgroup has to choose and to make its x before it can begin: one round of them is enough.
  while (shape.k * div_up(rows, tiles.rows_per_workgroup()) > kMultiprocessors && tiles.rows_per_workgroup() < rows) {
    tiles.bands += bands;
  }
  return tiles;
}

uint64_t down_cols(const ExpertsShape& shape) { return shape.k * pieces_of(shape.ffn) * kPiece; }

Tiles down_tiles(const Capabilities& capabilities, const ExpertsShape& shape) {
  // Nothing has to be made ready, so workgroups may be small, and many: measured best with rows that come from memory.
  Tiles tiles = project_tiles(capabilities, shape.hidden, down_cols(shape), false);
  tiles.groups = std::max<uint64_t>(1, kDownThreads / tiles.lanes);
  tiles.rows = tiles.bands = 1;
  tiles.steps = div_up(div_up(pieces_of(down_cols(shape)), tiles.lanes), 4);
  return tiles;
}

std::vector<std::pair<std::string, double>> tile_constants(const Tiles& t) {
  return {{"lanes", static_cast<double>(t.lanes)},
          {"groups", static_cast<double>(t.groups)},
          {"rows", static_cast<double>(t.rows)},
          {"bands", static_cast<double>(t.bands)},
          {"steps", static_cast<double>(t.steps)}};
}

// The experts of a part of W.
struct PartExperts {
  uint32_t first, count;
};
PartExperts experts_of(const Weight& weight, const WeightPart& part, uint64_t rows) {
  if (static_cast<uint64_t>(part.first_row) % rows != 0 || static_cast<uint64_t>(part.rows) % rows != 0) {
    fail({.code = ErrorCode::kInternal, .what = "an expert's rows lie in two parts", .where = weight.name});
  }
  return {u32(static_cast<uint64_t>(part.first_row) / rows), u32(static_cast<uint64_t>(part.rows) / rows)};
}

}  // namespace

Variant choose_route(const Capabilities&) { return {{}, {{"threads", kRouteThreads}}}; }
Variant choose_combine(const Capabilities&) { return {{}, {{"threads", kCombineThreads}}}; }

void record_route(Recording& recording, const std::string& step, const BoundBuffer& scores, const BoundBuffer& out,
                  uint64_t tokens, uint32_t experts, const Route& op, const BoundBuffer& learned) {
  const auto k = static_cast<uint32_t>(op.k);
  if (experts > kMaxExperts || k > kMaxChosen || k > experts) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "the WebGPU backend has no room for so many experts",
          .where = step,
          .expected = fmt::format("{} of up to {}", kMaxChosen, kMaxExperts),
          .got = fmt::format("{} of {}", k, experts),
          .todo = "Use --backend cpu"});
  }
  const Capabilities& capabilities = recording.device().capabilities();
  recording.dispatch<wgsl::Route>(step, choose_route(capabilities),
                                  {.tokens = static_cast<uint32_t>(tokens),
                                   .experts = experts,
                                   .k = k,
                                   .over_all = op.over_all,
                                   .has_learned = learned.buffer ? 1u : 0u},
                                  {.scores = scores, .learned = learned.buffer ? learned : scores, .out = out},
                                  linear_grid(tokens, capabilities.limits));
}

void record_combine(Recording& recording, const std::string& step, const BoundBuffer& experts, const BoundBuffer& route,
                    const BoundBuffer& out, uint64_t tokens, uint32_t width, uint32_t k) {
  const Capabilities& capabilities = recording.device().capabilities();
  recording.dispatch<wgsl::Combine>(step, choose_combine(capabilities),
                                    {.tokens = static_cast<uint32_t>(tokens), .width = width, .k = k},
                                    {.experts = experts, .route = route, .out = out},
                                    linear_grid(div_up(tokens * width, kCombineThreads), capabilities.limits));
}

bool can_fuse_experts(const Capabilities& capabilities, const ExpertsShape& shape) {
  const Tiles up = up_tiles(capabilities, shape), down = down_tiles(capabilities, shape);
  const uint64_t scores = kMaxExperts * 4 + kMaxChosen * 4, results = up.rows_per_workgroup() * 2;
  return shape.experts <= kMaxExperts && shape.k <= std::min(kMaxChosen, shape.experts) && shape.hidden % 4 == 0 &&
         shape.ffn % 4 == 0 && turns_of(shape.hidden, up) <= kMaxTurns && shape.k <= up.threads() &&
         shape.k <= down.threads() && kMaxChosen <= up.threads() &&
         project_workgroup_bytes(shape.hidden, false, up) + scores + results <= capabilities.limits.workgroup_bytes;
}

Variant choose_experts_up(const Capabilities& capabilities, const ExpertsShape& shape) {
  const Tiles t = up_tiles(capabilities, shape);
  const bool int16 = takes_int16(capabilities, shape);
  const uint32_t subgroup = one_subgroup_size(capabilities);
  Variant variant{{{"weights", std::string(kernel_name(shape.dtype))},
                   {"x", int16 ? "int16" : "float"},
                   {"int16", int16 ? "mxfp4" : "none"},
                   {"team_sum", subgroup ? "subgroup" : "plain"},
                   {"up_out", int16 ? "int16" : "plain"},
                   {"group_sum", subgroup ? "subgroup" : "plain"}},
                  tile_constants(t)};
  variant.constants.emplace_back("max_pieces", static_cast<double>(pieces_of(shape.hidden)));
  variant.constants.emplace_back("subgroup", std::max(1u, subgroup));
  variant.constants.emplace_back("turns", static_cast<double>(turns_of(shape.hidden, t)));
  return variant;
}

Variant choose_experts_down(const Capabilities& capabilities, const ExpertsShape& shape) {
  const bool int16 = takes_int16(capabilities, shape);
  Variant variant{{{"weights", std::string(kernel_name(shape.dtype))},
                   {"x", int16 ? "stored16" : "stored_float"},
                   {"int16", int16 ? "mxfp4" : "none"},
                   {"team_sum", one_subgroup_size(capabilities) ? "subgroup" : "plain"}},
                  tile_constants(down_tiles(capabilities, shape))};
  variant.constants.emplace_back("max_pieces", static_cast<double>(shape.k * pieces_of(shape.ffn)));
  variant.constants.emplace_back("own_pieces", static_cast<double>(pieces_of(shape.ffn)));
  return variant;
}

uint64_t experts_between_bytes(const Capabilities& capabilities, const ExpertsShape& shape) {
  return takes_int16(capabilities, shape) ? shape.k * pieces_of(shape.ffn) * 80 : shape.k * shape.ffn * 4;
}

void record_experts_up(Recording& recording, const std::string& step, const ExpertsShape& shape, const Weight& up,
                       const ExpertsInput& input, const BoundBuffer& bias, const Glu& glu, const BoundBuffer& between,
                       const BoundBuffer& route, uint32_t columns) {
  const Capabilities& capabilities = recording.device().capabilities();
  const Variant variant = choose_experts_up(capabilities, shape);
  const uint64_t rows = 2 * shape.ffn;
  const uint32_t workgroups = div_up(rows, up_tiles(capabilities, shape).rows_per_workgroup());
  for (const WeightPart& part : up.parts) {
    const PartExperts here = experts_of(up, part, rows);
    Grid grid = linear_grid(uint64_t{shape.k} * workgroups, capabilities.limits);
    grid.z = columns;
    recording.dispatch<wgsl::ExpertsUp>(step, variant,
                                        {.cols = u32(shape.hidden),
                                         .pieces = u32(pieces_of(shape.hidden)),
                                         .stride = u32(up.stride / 16),
                                         .rows = u32(rows),
                                         .experts = shape.experts,
                                         .k = shape.k,
                                         .first_expert = here.first,
                                         .part_experts = here.count,
                                         .rank_workgroups = workgroups,
                                         .bias = bias.buffer ? 1u : 0u,
                                         .activation = activation_number(glu.activation),
                                         .limit = glu.limit,
                                         .alpha = glu.alpha,
                                         .eps = input.eps,
                                         .offset = input.offset,
                                         .over_all = input.over_all,
                                         .between = u32(experts_between_bytes(capabilities, shape) / 4)},
                                        {.r = input.r,
                                         .norms = input.norms,
                                         .scores = input.scores,
                                         .w2 = part.bound(up.stride),
                                         .w4 = part.bound(up.stride),
                                         .bias = bias.buffer ? bias : input.norms,
                                         .y = between,
                                         .route = route},
                                        grid);
  }
}

void record_experts_down(Recording& recording, const std::string& step, const ExpertsShape& shape, const Weight& down,
                         const BoundBuffer& between, const BoundBuffer& route, const BoundBuffer& bias,
                         const BoundBuffer& y, uint32_t columns) {
  const Capabilities& capabilities = recording.device().capabilities();
  const Variant variant = choose_experts_down(capabilities, shape);
  const Tiles tiles = down_tiles(capabilities, shape);
  for (const WeightPart& part : down.parts) {
    const PartExperts here = experts_of(down, part, shape.hidden);
    Grid grid = linear_grid(div_up(shape.hidden, tiles.rows_per_workgroup()), capabilities.limits);
    grid.z = columns;
    recording.dispatch<wgsl::ExpertsDown>(step, variant,
                                          {.cols = u32(shape.ffn),
                                           .pieces = u32(shape.k * pieces_of(shape.ffn)),
                                           .stride = u32(down.stride / 16),
                                           .rows = u32(shape.hidden),
                                           .k = shape.k,
                                           .first_expert = here.first,
                                           .part_experts = here.count,
                                           .bias = bias.buffer ? 1u : 0u,
                                           .add = part.first_row > 0 ? 1u : 0u,
                                           .between = u32(experts_between_bytes(capabilities, shape) / 16)},
                                          {.x = between,
                                           .route = route,
                                           .w2 = part.bound(down.stride),
                                           .w4 = part.bound(down.stride),
                                           .bias = bias.buffer ? bias : route,
                                           .y = y},
                                          grid);
  }
}

MatmulChoice choose_expert_matmul(const Capabilities& capabilities, const ExpertMatmulShape& shape) {
  MatmulShape product;
  product.dtype = shape.dtype;
  product.tokens = div_up(shape.entries(), shape.experts);
  product.rows = shape.rows * std::min<uint64_t>(shape.experts, shape.entries());
  product.cols = shape.cols;
  product.exact = shape.exact;
  product.gathered = true;
  MatmulChoice choice = choose_matmul(capabilities, product);
  std::erase_if(choice.variant.snippets, [](const auto& snippet) { return snippet.first == "matmul_w"; });
  return choice;
}

uint64_t expert_entries_bytes(uint64_t tokens, uint32_t k) { return tokens * k * 4; }
uint64_t expert_tiles_bytes(uint64_t tokens, uint32_t experts, uint32_t k) {
  return max_tiles(tokens * k, experts, kMinTileTokens) * 16;
}

uint64_t expert_tiles(const ExpertMatmulShape& shape, uint32_t tile_tokens) {
  return max_tiles(shape.entries(), shape.experts, tile_tokens);
}

Variant choose_expert_map(const Capabilities&) { return {{}, {{"threads", kMaxExperts}}}; }

void record_expert_map(Recording& recording, const std::string& step, const ExpertMatmulShape& shape,
                       uint32_t tile_tokens, const BoundBuffer& route, const ExpertMap& map) {
  recording.dispatch<wgsl::ExpertMap>(step, choose_expert_map(recording.device().capabilities()),
                                      {.entries = u32(shape.entries()),
                                       .k = shape.k,
                                       .experts = shape.experts,
                                       .tile_tokens = tile_tokens,
                                       .tiles = u32(expert_tiles(shape, tile_tokens))},
                                      {.route = route, .entries = map.entries, .tiles = map.tiles}, {1, 1, 1});
}

void record_expert_matmul(Recording& recording, const std::string& step, const MatmulChoice& choice,
                          const ExpertMatmulShape& shape, const Weight& weight, const MatmulInput& x,
                          const ExpertMap& map, const BoundBuffer& bias, const BoundBuffer& out) {
  const uint32_t pieces = div_up(shape.cols, kPiece), entries_per_row = shape.per_expert ? 1 : shape.k;
  const Grid grid = {div_up(shape.rows, choice.tile_rows), u32(expert_tiles(shape, choice.tile_tokens)), 1};
  for (const WeightPart& part : weight.parts) {
    const PartExperts here = experts_of(weight, part, shape.rows);
    if (choice.kernel == MatmulKernel::kFloat) {
      recording.dispatch<wgsl::ExpertMatmulF32>(step, choice.variant,
                                                {.cols = u32(shape.cols),
                                                 .pieces = pieces,
                                                 .stride = u32(weight.stride / 16),
                                                 .rows = u32(shape.rows),
                                                 .entries_per_row = entries_per_row,
                                                 .first_expert = here.first,
                                                 .experts = here.count,
                                                 .bias = bias.buffer ? 1u : 0u},
                                                {.x = x.plain,
                                                 .w2 = part.bound(weight.stride),
                                                 .w4 = part.bound(weight.stride),
                                                 .bias = bias.buffer ? bias : x.plain,
                                                 .entries = map.entries,
                                                 .tiles = map.tiles,
                                                 .out = out},
                                                grid);
    } else {
      recording.dispatch<wgsl::ExpertMatmulInt8>(step, choice.variant,
                                                 {.tokens = u32(shape.x_rows()),
                                                  .pieces = pieces,
                                                  .stride = u32(weight.stride / 16),
                                                  .steps = div_up(pieces, 2),
                                                  .rows = u32(shape.rows),
                                                  .entries_per_row = entries_per_row,
                                                  .first_expert = here.first,
                                                  .experts = here.count,
                                                  .bias = bias.buffer ? 1u : 0u},
                                                 {.x = x.quantized.values,
                                                  .x_scales = x.quantized.scales,
                                                  .w4 = part.bound(weight.stride),
                                                  .bias = bias.buffer ? bias : x.quantized.scales,
                                                  .entries = map.entries,
                                                  .tiles = map.tiles,
                                                  .out = out},
                                                 grid);
    }
  }
}

}  // namespace doppler::gpu
