// A mixture of experts: the choice of a token's experts and the sum of their results; the experts of one decoded token,
// fused; the products of experts for many tokens.
#pragma once

#include "gpu/ops/matmul.h"
#include "gpu/ops/weight.h"
#include "gpu/webgpu/recording.h"
#include "model/plan.h"

namespace doppler::gpu {

inline constexpr uint32_t kMaxExperts = 256, kMaxChosen = 32;  // as in ops/route.wgsl

Variant choose_route(const Capabilities& capabilities);
// scores f32 [tokens, experts]; out f32 [tokens, 2k]: the chosen experts' numbers, then their weights.
// `learned` f32 [experts] multiplies the weights, where it is not none. Fails for more experts than the kernels have
// room for.
void record_route(Recording& recording, const std::string& step, const BoundBuffer& scores, const BoundBuffer& out,
                  uint64_t tokens, uint32_t experts, const Route& op, const BoundBuffer& learned = {});

Variant choose_combine(const Capabilities& capabilities);
// out f32 [tokens, width] = Σ weight · experts f32 [tokens, k, width]
void record_combine(Recording& recording, const std::string& step, const BoundBuffer& experts, const BoundBuffer& route,
                    const BoundBuffer& out, uint64_t tokens, uint32_t width, uint32_t k);

// The experts of decoded tokens in two dispatches: the choice with gate, up and activation, and down with the sum. One
// token, or `columns` of them: then every buffer has as many rows of what is said here of one.
// Of W only the chosen experts' rows are read; which ones they are never leaves the GPU.
struct ExpertsShape {
  DType dtype = DType::kMXFP4;
  uint32_t experts = 0, k = 0;
  uint64_t hidden = 0, ffn = 0;  // an expert: [2 · ffn, hidden] and [hidden, ffn]
};

// Can these kernels do it on this device? If not, the unfused steps must.
bool can_fuse_experts(const Capabilities& capabilities, const ExpertsShape& shape);

Variant choose_experts_up(const Capabilities& capabilities, const ExpertsShape& shape);
Variant choose_experts_down(const Capabilities& capabilities, const ExpertsShape& shape);

// What lies between the two: [k · ffn] as f32, or as integers of 16 bits (ops/lib/experts.wgsl).
uint64_t experts_between_bytes(const Capabilities& capabilities, const ExpertsShape& shape);

struct ExpertsInput {
  BoundBuffer r, norms;  // f32 [hidden]: W · norm(r) is computed
  BoundBuffer scores;    // f32 [experts]: the router's
  float eps = 0, offset = 0;
  bool over_all = false;  // Route::over_all
};

// `up` and `down` are split between experts, if at all (upload_weight); biases f32 [experts, rows] or none.
// route f32 [2k] is written; between: experts_between_bytes().
void record_experts_up(Recording& recording, const std::string& step, const ExpertsShape& shape, const Weight& up,
                       const ExpertsInput& input, const BoundBuffer& bias, const Glu& glu, const BoundBuffer& between,
                       const BoundBuffer& route, uint32_t columns = 1);
// y f32 [hidden] = Σ weight · expert's output
void record_experts_down(Recording& recording, const std::string& step, const ExpertsShape& shape, const Weight& down,
                         const BoundBuffer& between, const BoundBuffer& route, const BoundBuffer& bias,
                         const BoundBuffer& y, uint32_t columns = 1);

// out [tokens, k, rows] = x · W[expert]ᵀ (+ the expert's bias) for the k experts every token chose: tokens are grouped
// by expert on the GPU, so that each expert's rows are read once for all tokens of a tile, and experts nobody chose are
// not read. The order of every sum is fixed.
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
