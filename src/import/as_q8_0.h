// Weights of types that somebody has no kernels for, as Q8_0.
#pragma once

#include "format/tensor.h"

namespace doppler {

// Types of one f16 scale and whole levels of at most 8 bits for 32 weights: as Q8_0 they are the same numbers.
bool is_scaled_levels(DType type);

// One stored row; `values` has room for it. Exact for scaled levels, else the nearest of 255
// levels. False: a weight is not a finite number.
bool row_as_q8_0(DType type, const std::byte* row, size_t cols, float* values, std::byte* out);

// The nearest of 255 levels for 32 weights, the largest magnitude at one end.
void round_to_q8_0(const float* values, size_t cols, std::byte* out);

// A tensor whose rows are that when they are read, by several threads. `tensor` is mapped, and its bytes outlive it.
Tensor read_as_q8_0(const Tensor& tensor);

}  // namespace doppler
