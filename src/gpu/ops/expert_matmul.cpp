#include "gpu/ops/expert_matmul.h"

#include <algorithm>

#include "base/error.h"
#include "gpu/ops/route.h"
#include "gpu/wgsl/expert_map.h"
#include "gpu/wgsl/expert_matmul_f32.h"
#include "gpu/wgsl/expert_matmul_int8.h"

namespace doppler::gpu {
namespace {

constexpr uint32_t kLeastTileTokens = 8;  // of any tile there is

uint32_t u32(uint64_t value) { return static_cast<uint32_t>(value); }

// Every expert may end with a tile that is not full.
uint64_t most_tiles(uint64_t entries, uint32_t experts, uint32_t tile_tokens) {
  return entries / tile_tokens + std::min<uint64_t>(experts, entries);
}

}  // namespace

MatmulChoice choose_expert_matmul(const Capabilities& capabilities, const ExpertMatmulShape& shape) {
  MatmulShape product;
  product.dtype = shape.dtype;
  product.tokens = div_up(shape.entries(), shape.experts);
  product.rows = shape.rows * std::min<uint64_t>(shape.experts, shape.entries());
  product.cols = shape.cols;
  product.exact = shape.exact;
  product.gathered = true;
  MatmulChoice choice = choose_matmul(capabilities, product);
  std::erase_if(choice.variant.slots, [](const auto& slot) { return slot.first == "matmul_w"; });
  return choice;
}

uint64_t expert_entries_bytes(uint64_t tokens, uint32_t k) { return tokens * k * 4; }
uint64_t expert_tiles_bytes(uint64_t tokens, uint32_t experts, uint32_t k) {
  return most_tiles(tokens * k, experts, kLeastTileTokens) * 16;
}

uint64_t expert_tiles(const ExpertMatmulShape& shape, uint32_t tile_tokens) {
  return most_tiles(shape.entries(), shape.experts, tile_tokens);
}

Variant choose_expert_map(const Capabilities&) { return {{}, {{"threads", kMostExperts}}}; }

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
  const uint32_t pieces = div_up(shape.cols, kPiece), share = shape.per_expert ? 1 : shape.k;
  const Grid grid = {div_up(shape.rows, choice.tile_rows), u32(expert_tiles(shape, choice.tile_tokens)), 1};
  for (const WeightPart& part : weight.parts) {
    const uint64_t first = static_cast<uint64_t>(part.first_row), count = static_cast<uint64_t>(part.rows);
    if (first % shape.rows != 0 || count % shape.rows != 0) {
      fail({ErrorCode::kInternal, "an expert's rows lie in two parts", weight.name, "", "", ""});
    }
    if (choice.kernel == MatmulKernel::kFloat) {
      recording.dispatch<wgsl::ExpertMatmulF32>(step, choice.variant,
                                                {.cols = u32(shape.cols),
                                                 .pieces = pieces,
                                                 .stride = u32(weight.stride / 16),
                                                 .rows = u32(shape.rows),
                                                 .share = share,
                                                 .first_expert = u32(first / shape.rows),
                                                 .experts = u32(count / shape.rows),
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
                                                  .share = share,
                                                  .first_expert = u32(first / shape.rows),
                                                  .experts = u32(count / shape.rows),
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
