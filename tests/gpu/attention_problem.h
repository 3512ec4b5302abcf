// A layer's attention with random numbers: what the tests of the kernels around it share.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gpu/cases/attention_truth.h"
#include "gpu/ops/attention.h"
#include "ref/ops.h"

namespace doppler::gpu {

inline std::vector<float> random_floats(size_t count, double spread, uint32_t seed) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal(0, static_cast<float>(spread));
  std::vector<float> values(count);
  for (float& v : values) v = normal(bits);
  return values;
}

template <class T>
Buffer upload(Device& device, const std::string& label, const std::vector<T>& values) {
  Buffer buffer = device.create_buffer(label, std::max<size_t>(values.size(), 4) * sizeof(T));
  write<T>(device, buffer, std::span<const T>(values));
  return buffer;
}

inline Buffer upload_state(Device& device, const DecodeState& state) {
  return upload(device, "state", std::vector<DecodeState>{state});
}

inline Attention plan_op(const AttentionShape& shape) {
  return {.layer = 0,
          .heads = static_cast<int>(shape.heads),
          .kv_heads = static_cast<int>(shape.kv_heads),
          .head_dim = static_cast<int>(shape.head_dim),
          .window = static_cast<int>(shape.window),
          .scale = shape.scale,
          .softcap = shape.softcap,
          .sinks = shape.sinks};
}

// Empty if every element is within its bound; else the worst one, in words.
inline std::string worst_of(const std::vector<float>& got, const std::vector<float>& expected,
                            const std::vector<double>& bound, double* worst_ratio = nullptr) {
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    double ratio = std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i])) / bound[i];
    if (std::isnan(ratio)) ratio = 1e300;
    if (ratio > worst) {
      worst = ratio;
      at = i;
    }
  }
  if (worst_ratio != nullptr) *worst_ratio = std::max(*worst_ratio, worst);
  if (worst <= 1) return "";
  return "element " + std::to_string(at) + " is " + std::to_string(got[at]) + ", expected " +
         std::to_string(expected[at]) + " within " + std::to_string(bound[at]);
}

}  // namespace doppler::gpu
