// The experts of one decoded token in two dispatches: the choice with gate, up and activation, and down with the sum.
// Of W only the chosen experts' rows are read; which ones they are never leaves the GPU.
#pragma once

#include "gpu/ops/weight.h"
#include "gpu/webgpu/recording.h"
#include "model/plan.h"

namespace doppler::gpu {

struct ExpertsShape {
  DType dtype = DType::kMXFP4;
  uint32_t experts = 0, k = 0;
  uint64_t hidden = 0, ffn = 0;  // an expert: [2 · ffn, hidden] and [hidden, ffn]
};

// Can these kernels do it on this device? If not, the unfused steps must.
bool can_fuse_experts(const Capabilities& capabilities, const ExpertsShape& shape);

Variant choose_experts_up(const Capabilities& capabilities, const ExpertsShape& shape);
Variant choose_experts_down(const Capabilities& capabilities, const ExpertsShape& shape);

// What lies between the two: [k · ffn] as f32, or as integers of 16 bits (ops/lib/up_out.int16.wgsl).
uint64_t experts_between_bytes(const Capabilities& capabilities, const ExpertsShape& shape);

struct ExpertsInput {
  BoundBuffer r, norms;  // f32 [hidden]: W · norm(r) is computed
  BoundBuffer scores;    // f32 [experts]: the router's
  float eps = 0, offset = 0;
};

// `up` and `down` are split between experts, if at all (upload_weight); biases f32 [experts, rows] or none.
// route f32 [2k] is written; between: experts_between_bytes().
void record_experts_up(Recording& recording, const std::string& step, const ExpertsShape& shape, const Weight& up,
                       const ExpertsInput& input, const BoundBuffer& bias, const Glu& glu, const BoundBuffer& between,
                       const BoundBuffer& route);
// y f32 [hidden] = Σ weight · expert's output
void record_experts_down(Recording& recording, const std::string& step, const ExpertsShape& shape, const Weight& down,
                         const BoundBuffer& between, const BoundBuffer& route, const BoundBuffer& bias,
                         const BoundBuffer& y);

}  // namespace doppler::gpu
