// A layer's attention with random numbers: what the tests of the kernels around it share.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "gpu/attention_shape.h"
#include "gpu/decode_state.h"
#include "gpu/rope_tables.h"
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

inline float rounded_to_f16(float v) { return f16_to_f32(f32_to_f16(v)); }

// Where dim d of a key or value lies in a layer's cache, in halves: the layout of kernels/lib/kv_cache.wgsl, written a
// second time on purpose.
struct CacheMap {
  AttentionShape shape;
  size_t key(size_t kv_head, size_t position, size_t d) const {
    const size_t chunks = shape.head_dim / 8, slot = position % shape.capacity;
    return (((kv_head * chunks + d / 8) * shape.capacity) + slot) * 8 + d % 8;
  }
  size_t value(size_t kv_head, size_t position, size_t d) const {
    const size_t slot = position % shape.capacity;
    return size_t{shape.kv_heads} * shape.capacity * shape.head_dim +
           (kv_head * shape.capacity + slot) * shape.head_dim + d;
  }
  size_t halves() const { return size_t{2} * shape.kv_heads * shape.capacity * shape.head_dim; }
};

// The cache after keys and values [positions, kv_heads · head_dim] were stored in order.
inline std::vector<uint16_t> packed_cache(const AttentionShape& shape, const std::vector<float>& keys,
                                          const std::vector<float>& values) {
  const CacheMap map{shape};
  std::vector<uint16_t> cache(map.halves(), 0x7e00);  // NaN where nothing was stored: reading it would show
  const size_t width = size_t{shape.kv_heads} * shape.head_dim, count = keys.size() / width;
  for (size_t p = 0; p < count; ++p) {
    for (size_t h = 0; h < shape.kv_heads; ++h) {
      for (size_t d = 0; d < shape.head_dim; ++d) {
        const size_t from = p * width + h * shape.head_dim + d;
        cache[map.key(h, p, d)] = f32_to_f16(keys[from]);
        cache[map.value(h, p, d)] = f32_to_f16(values[from]);
      }
    }
  }
  return cache;
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

// How far an attention kernel in f32 may be from ref::attention, element by element of [tokens, heads · head_dim].
// q_error: how far each element of q may be off already.
//
// A score is a sum of head_dim products in some order: (head_dim + 3) half-ulps of Σ|q·k|, plus what q's error makes of
// it, plus a few ulps of the soft-cap. A share exp(score - max) has that as its relative error, plus that of exp
// (3 + 2|x| ulp) and of the rescaling by later maxima (as much again, twice: tiles and splits). An error r of share p
// moves the result by r · p · |v - out|. The sum of p·v is of n products.
inline std::vector<double> attention_bound(const AttentionShape& shape, const std::vector<float>& q,
                                           const std::vector<float>& keys, const std::vector<float>& values,
                                           const std::vector<float>& sinks, int first, double q_error) {
  const size_t dim = shape.head_dim, q_width = shape.heads * dim, kv_width = shape.kv_heads * dim;
  const int n = static_cast<int>(q.size() / q_width);
  std::vector<double> bound(q.size());
  for (int t = 0; t < n; ++t) {
    const int position = first + t;
    const int window = static_cast<int>(shape.window);
    const int oldest = window > 0 ? std::max(0, position - window + 1) : 0;
    for (size_t h = 0; h < shape.heads; ++h) {
      const float* query = q.data() + static_cast<size_t>(t) * q_width + h * dim;
      const size_t kv = h / shape.share() * dim;
      std::vector<double> score, error;
      double highest = shape.sinks ? static_cast<double>(sinks[h]) : -INFINITY;
      for (int j = oldest; j <= position; ++j) {
        const float* key = keys.data() + static_cast<size_t>(j) * kv_width + kv;
        double s = 0, size = 0, key_size = 0;
        for (size_t d = 0; d < dim; ++d) {
          const double product = static_cast<double>(query[d]) * static_cast<double>(key[d]);
          s += product;
          size += std::abs(product);
          key_size += std::abs(static_cast<double>(key[d]));
        }
        const double scale = static_cast<double>(shape.scale), cap = static_cast<double>(shape.softcap);
        double e = 0x1p-24 * static_cast<double>(dim + 3) * size * scale + q_error * key_size * scale;
        s *= scale;
        if (cap > 0) {
          s = cap * std::tanh(s / cap);
          e += 8 * 0x1p-23 * cap;
        }
        score.push_back(s);
        error.push_back(e);
        highest = std::max(highest, s);
      }
      double total = shape.sinks ? std::exp(static_cast<double>(sinks[h]) - highest) : 0, worst = 0;
      for (size_t j = 0; j < score.size(); ++j) {
        total += std::exp(score[j] - highest);
        worst = std::max(worst, error[j]);
      }
      for (size_t d = 0; d < dim; ++d) {
        const auto value = [&](size_t j) {
          return static_cast<double>(values[(static_cast<size_t>(oldest) + j) * kv_width + kv + d]);
        };
        double out = 0, size = 0;
        for (size_t j = 0; j < score.size(); ++j) {
          const double p = std::exp(score[j] - highest) / total;
          out += p * value(j);
          size += p * std::abs(value(j));
        }
        double sum = 0;
        const auto moves = [&](double s, double e, double away) {
          const double p = std::exp(s - highest) / total;
          return p * away * (e + worst + 0x1p-23 * (16 + 8 * (highest - s)));
        };
        for (size_t j = 0; j < score.size(); ++j) sum += moves(score[j], error[j], std::abs(value(j) - out));
        if (shape.sinks) sum += moves(static_cast<double>(sinks[h]), 0, std::abs(out));
        bound[static_cast<size_t>(t) * q_width + h * dim + d] =
            sum + 0x1p-24 * static_cast<double>(score.size() + 16) * size + 1e-30;
      }
    }
  }
  return bound;
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
