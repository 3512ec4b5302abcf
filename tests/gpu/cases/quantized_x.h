// What activations.wgsl makes of x, on the host.
#pragma once

#include <cstddef>
#include <vector>

namespace doppler::gpu {

struct QuantizedX {
  std::vector<double> values;       // [tokens, cols]: scale · q
  std::vector<double> uncertainty;  // of each: one step of the scale where rounding is too close to call, else 0
  std::vector<double> scales;       // [tokens, pieces]
  std::vector<double> sums;         // [tokens, pieces]: scale · Σ q
  std::vector<double> sum_uncertainty;
};

QuantizedX quantize_x(const std::vector<float>& x, size_t tokens, size_t cols);

}  // namespace doppler::gpu
