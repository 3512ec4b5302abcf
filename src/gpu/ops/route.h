// The steps of a mixture of experts that are no matrix product: the choice of a token's experts, and their sum.
#pragma once

#include "gpu/webgpu/recording.h"

namespace doppler::gpu {

inline constexpr uint32_t kMostExperts = 256, kMostChosen = 32;  // as in ops/lib/top_experts.wgsl

Variant choose_route(const Capabilities& capabilities);
// scores f32 [tokens, experts]; out f32 [tokens, 2k]: the chosen experts' numbers, then the softmax of their scores.
// Fails for more experts than the kernels have room for.
void record_route(Recording& recording, const std::string& step, const BoundBuffer& scores, const BoundBuffer& out,
                  uint64_t tokens, uint32_t experts, uint32_t k);

Variant choose_combine(const Capabilities& capabilities);
// out f32 [tokens, width] = Σ weight · experts f32 [tokens, k, width]
void record_combine(Recording& recording, const std::string& step, const BoundBuffer& experts, const BoundBuffer& route,
                    const BoundBuffer& out, uint64_t tokens, uint32_t width, uint32_t k);

}  // namespace doppler::gpu
