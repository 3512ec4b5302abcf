// out [tokens, k, rows] = x · W[expert]ᵀ (+ the expert's bias) for the k experts every token chose: tokens are grouped
// by expert on the GPU, so that each expert's rows are read once for all tokens of a tile, and experts nobody chose are
// not read. The order of every sum is fixed.
#pragma once

#include "gpu/ops/matmul.h"

namespace doppler::gpu {

struct ExpertMatmulShape {
  DType dtype = DType::kMXFP4;
  uint64_t tokens = 0, rows = 0, cols = 0;  // of one expert
  uint32_t experts = 0, k = 0;
  bool per_expert = false;  // x is [tokens, k, cols], not [tokens, cols]
  bool exact = false;       // x stays in f32, whatever the device can do

  uint64_t entries() const { return tokens * k; }
  uint64_t x_rows() const { return per_expert ? entries() : tokens; }
};

// As choose_matmul(): kernel and tile for the number of tokens an expert has on the average.
MatmulChoice choose_expert_matmul(const Capabilities& capabilities, const ExpertMatmulShape& shape);

// Which tokens each expert has, for tiles of choice.tile_tokens. entries u32 [tokens · k]: token · k + place, by
// expert; tiles u32 [expert_tiles(), 4]: expert, first entry, entries (0: none), and the number of the expert's rows in
// W.
struct ExpertMap {
  BoundBuffer entries, tiles;
};
uint64_t expert_tiles(const ExpertMatmulShape& shape, uint32_t tile_tokens);
uint64_t expert_entries_bytes(uint64_t tokens, uint32_t k);
uint64_t expert_tiles_bytes(uint64_t tokens, uint32_t experts, uint32_t k);  // whatever the tile

Variant choose_expert_map(const Capabilities& capabilities);
// route f32 [tokens, 2k]
void record_expert_map(Recording& recording, const std::string& step, const ExpertMatmulShape& shape,
                       uint32_t tile_tokens, const BoundBuffer& route, const ExpertMap& map);

// x as the choice's kernel takes it, x_rows() rows; bias f32 [experts, rows] or none. W is split between experts, if at
// all.
void record_expert_matmul(Recording& recording, const std::string& step, const MatmulChoice& choice,
                          const ExpertMatmulShape& shape, const Weight& weight, const MatmulInput& x,
                          const ExpertMap& map, const BoundBuffer& bias, const BoundBuffer& out);

}  // namespace doppler::gpu
