// Random weight matrices in stored form, for the cases of kernels that compute from them.
#pragma once

#include <vector>

#include "format/tensor.h"
#include "gpu/cases/kernel_cases.h"

namespace doppler::gpu {

struct RandomMatrix {
  std::vector<std::byte> bytes;
  Tensor tensor;  // points into bytes

  RandomMatrix(DType dtype, int64_t rows, int64_t cols, uint64_t seed);
  RandomMatrix(const RandomMatrix&) = delete;
  RandomMatrix& operator=(const RandomMatrix&) = delete;

  // The weights of a row as ggml decodes them, and for every weight the sum of the magnitudes of the terms it is made
  // of (Q4_K: |d·scale·q| + |dmin·min|; Q6_K: |d·scale|·(q + 32)), which is what rounding errors are proportional to.
  std::vector<float> row(int64_t r) const;
  std::vector<double> magnitudes(int64_t r) const;
};

}  // namespace doppler::gpu
