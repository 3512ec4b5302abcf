// Activations as f16, for matrix products by subgroup matrices (matmul.h): x ≈ scale · h with one scale a token, a
// power of two, so that no magnitude of x overflows. |x − scale · h| ≤ 2^-11 · |x|, or 2^-39 of the token's largest
// |x|.
#pragma once

#include "gpu/webgpu/recording.h"

namespace doppler::gpu {

// Columns are padded with zeros to a multiple of 64.
struct HalvedActivations {
  BoundBuffer values;  // f16 [tokens, padded cols]
  BoundBuffer scales;  // f32 [tokens]
};

uint64_t halved_values_bytes(uint64_t tokens, uint64_t cols);
uint64_t halved_scales_bytes(uint64_t tokens);

Variant choose_halve_activations(const Capabilities& capabilities, uint64_t cols);

// x f32 [tokens, cols].
void record_halve_activations(Recording& recording, const std::string& step, const BoundBuffer& x, uint64_t tokens,
                              uint64_t cols, const HalvedActivations& out);

}  // namespace doppler::gpu
