// Random weights drawn straight into stored blocks: valid bytes whose decoded values are bell-shaped with a given
// standard deviation. Drawing blocks is some hundred times faster than drawing floats and quantising them.
//
// Counter-based: a row's bytes depend on the key and the row's number only, not on threads or order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "format/dtype.h"

namespace doppler {

// A well-mixed 64-bit word for each (key, counter).
uint64_t random_word(uint64_t key, uint64_t counter);

// The key of a stream, from the seed and a tensor's slot.
uint64_t stream_key(uint64_t seed, const char* text, size_t length);

// Row `row` of `cols` weights with mean 0 and standard deviation `deviation`, in F32, F16, BF16, Q8_0, Q4_K, Q6_K or
// MXFP4; writes row_bytes(dtype, cols). Padding is zero, or as near to zero as the block's last steps allow.
void synth_row(DType dtype, uint64_t key, uint64_t row, float deviation, std::byte* out, size_t cols);

// As floats, with a mean: norms and biases.
void synth_floats(uint64_t key, float mean, float deviation, float* out, size_t count);

}  // namespace doppler
