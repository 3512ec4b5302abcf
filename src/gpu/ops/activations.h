// The input of a matrix product in the format its kernel takes (matmul.h).
#pragma once

#include "gpu/webgpu/recording.h"

namespace doppler::gpu {

// Activations as 8-bit integers, for matrix products by packed integer dot products (matmul.h): x ≈ scale · q with one
// scale per piece of 32 columns. The largest |x| of a piece becomes 127, so |x − scale · q| ≤ scale / 2 = max|x| / 254.

// Where they lie; see ops/activations.wgsl. Columns are padded with zeros to a multiple of 64.
struct QuantizedActivations {
  BoundBuffer values;  // i8, 16 columns of one token side by side: [padded cols / 16][tokens][16]
  BoundBuffer scales;  // f32 pairs (scale, scale · Σ q): [padded cols / 32][tokens][2]
};

uint64_t quantized_values_bytes(uint64_t tokens, uint64_t cols);
uint64_t quantized_scales_bytes(uint64_t tokens, uint64_t cols);

// Fails (kInternal) without Capabilities::int8_dot.
Variant choose_quantize_activations(const Capabilities& capabilities, uint64_t cols);

// x f32 [tokens, cols].
void record_quantize_activations(Recording& recording, const std::string& step, const BoundBuffer& x, uint64_t tokens,
                                 uint64_t cols, const QuantizedActivations& out);

// Activations as f16, for matrix products by subgroup matrices (matmul.h): x ≈ scale · h with one scale per token, a
// power of two, so that no magnitude of x overflows. |x − scale · h| ≤ 2^-11 · |x|, or 2^-39 of the token's largest
// |x|.

// Columns are padded with zeros to a multiple of 64.
struct F16Activations {
  BoundBuffer values;  // f16 [tokens, padded cols]
  BoundBuffer scales;  // f32 [tokens]
};

uint64_t f16_values_bytes(uint64_t tokens, uint64_t cols);
uint64_t f16_scales_bytes(uint64_t tokens);

Variant choose_activations_to_f16(const Capabilities& capabilities, uint64_t cols);

// x f32 [tokens, cols].
void record_activations_to_f16(Recording& recording, const std::string& step, const BoundBuffer& x, uint64_t tokens,
                               uint64_t cols, const F16Activations& out);

}  // namespace doppler::gpu
