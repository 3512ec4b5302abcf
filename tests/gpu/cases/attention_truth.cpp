#include "gpu/cases/attention_truth.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"

namespace doppler::gpu {
namespace {

struct Score {
  double value, error;
};

// A score is a sum of head_dim products in some order: (head_dim + 3) half-ulps of Σ|q·k|, plus what q's error makes of
// it, plus a few ulps of the soft-cap.
Score score_of(const AttentionShape& shape, const float* query, const float* key, double q_error) {
  double sum = 0, size = 0, key_size = 0;
  for (size_t d = 0; d < shape.head_dim; ++d) {
    const double product = static_cast<double>(query[d]) * static_cast<double>(key[d]);
    sum += product;
    size += std::abs(product);
    key_size += std::abs(static_cast<double>(key[d]));
  }
  const double scale = static_cast<double>(shape.scale), cap = static_cast<double>(shape.softcap);
  Score s{sum * scale, scale * (0x1p-24 * (shape.head_dim + 3.0) * size + q_error * key_size)};
  if (cap > 0) {
    s.value = cap * std::tanh(s.value / cap);
    s.error += 8 * 0x1p-23 * cap;
  }
  return s;
}

}  // namespace

AttentionTruth attention_truth(const AttentionShape& shape, const std::vector<float>& q, const std::vector<float>& keys,
                               const std::vector<float>& values, const std::vector<float>& sinks, uint32_t first,
                               double q_error) {
  const size_t dim = shape.head_dim, kv_width = shape.kv_heads * dim;
  AttentionTruth truth;
  truth.expected.resize(q.size());
  truth.bound.resize(q.size());
  for (size_t row = 0; row < q.size() / dim; ++row) {
    const size_t head = row % shape.heads, kv = head / shape.heads_per_kv() * dim, position = first + row / shape.heads;
    const size_t oldest = shape.window != 0 && position + 1 > shape.window ? position + 1 - shape.window : 0;
    const size_t newest = std::min(position + shape.ahead, keys.size() / kv_width - 1);
    std::vector<Score> scores;
    for (size_t j = oldest; j <= newest; ++j) {
      scores.push_back(score_of(shape, q.data() + row * dim, keys.data() + j * kv_width + kv, q_error));
    }
    if (shape.sinks) scores.push_back({static_cast<double>(sinks[head]), 0});  // a score without a value
    double highest = -INFINITY, worst = 0, total = 0;
    for (const Score& s : scores) {
      highest = std::max(highest, s.value);
      worst = std::max(worst, s.error);
    }
    for (const Score& s : scores) total += std::exp(s.value - highest);
    for (size_t d = 0; d < dim; ++d) {
      const auto value = [&](size_t j) {
        return oldest + j <= newest ? static_cast<double>(values[(oldest + j) * kv_width + kv + d]) : 0.0;
      };
      double out = 0, size = 0, moved = 0;
      for (size_t j = 0; j < scores.size(); ++j) {
        const double share = std::exp(scores[j].value - highest) / total;
        out += share * value(j);
        size += share * std::abs(value(j));
      }
      // A share exp(score - max) has the score's error as its relative error, plus that of exp (3 + 2|x| ulp) and of
      // the rescaling by later maxima (as much again, twice: tiles and splits). A relative error r of share p moves the
      // result by r · p · |v - out|. The result itself is a sum of products.
      for (size_t j = 0; j < scores.size(); ++j) {
        const double depth = highest - scores[j].value;
        moved += std::exp(-depth) / total * std::abs(value(j) - out) *
                 (scores[j].error + worst + 0x1p-23 * (16 + 8 * depth));
      }
      truth.expected[row * dim + d] = out;
      truth.bound[row * dim + d] = moved + 0x1p-24 * static_cast<double>(scores.size() + 16) * size + 1e-30;
    }
  }
  return truth;
}

size_t CacheMap::page(size_t position) const {
  return (shape.pages - 1 - position / kPageTokens % shape.pages) * kv_page_bytes(shape) / 2;
}

size_t CacheMap::key(size_t kv_head, size_t position, size_t d) const {
  const size_t chunks = shape.head_dim / 8, slot = position % kPageTokens;
  return page(position) + (((kv_head * chunks + d / 8) * kPageTokens) + slot) * 8 + d % 8;
}

size_t CacheMap::value(size_t kv_head, size_t position, size_t d) const {
  const size_t slot = position % kPageTokens;
  return page(position) + ((shape.kv_heads + kv_head) * kPageTokens + slot) * shape.head_dim + d;
}

size_t CacheMap::step(size_t kv_head, size_t position) const {
  return page(position) + size_t{2} * shape.kv_heads * kPageTokens * shape.head_dim +
         2 * (kv_head * kPageTokens + position % kPageTokens);
}

std::vector<uint32_t> CacheMap::state(uint32_t position, uint32_t end) const {
  std::vector<uint32_t> words = {position, 0, 0, 0};
  words.resize(4 + shape.table, UINT32_MAX);
  for (uint32_t number = 0; number * kPageTokens < end; ++number) {
    words.push_back(shape.pages - 1 - number % shape.pages);
  }
  return words;
}

uint32_t pages_for(uint32_t context, uint32_t window, uint32_t tokens) {
  const uint32_t seen = window == 0 ? context : std::min(context, window + tokens + kPageTokens);
  return (seen + kPageTokens - 1) / kPageTokens;
}

size_t CacheMap::elements() const { return kv_bytes(shape) / 2; }

float pack_value(std::span<const float> value, uint16_t* packed) {
  float most = 0;
  for (const float v : value) most = std::max(most, std::abs(v));
  const float inverse = most > 0 ? 32767.0f / most : 0;
  for (size_t d = 0; d < value.size(); ++d) {
    packed[d] = static_cast<uint16_t>(static_cast<int>(std::nearbyint(value[d] * inverse)));
  }
  return most / 32767.0f;
}

void unpack_value(std::span<const uint16_t> packed, float step, float* value) {
  for (size_t d = 0; d < packed.size(); ++d) value[d] = static_cast<float>(static_cast<int16_t>(packed[d])) * step;
}

std::vector<float> as_cached_keys(std::vector<float> keys) {
  for (float& k : keys) k = f16_to_f32(f32_to_f16(k));
  return keys;
}

std::vector<float> as_cached_values(std::vector<float> values, size_t head_dim) {
  std::vector<uint16_t> packed(head_dim);
  for (size_t i = 0; i < values.size(); i += head_dim) {
    const float step = pack_value(std::span(values).subspan(i, head_dim), packed.data());
    unpack_value(packed, step, values.data() + i);
  }
  return values;
}

std::vector<uint16_t> packed_cache(const AttentionShape& shape, const std::vector<float>& keys,
                                   const std::vector<float>& values, uint16_t fill) {
  const CacheMap map{shape};
  std::vector<uint16_t> cache(map.elements(), fill);
  const size_t dim = shape.head_dim, width = shape.kv_heads * dim;
  for (size_t i = 0; i < keys.size(); i += dim) {
    const size_t position = i / width, head = i % width / dim;
    for (size_t d = 0; d < dim; ++d) cache[map.key(head, position, d)] = f32_to_f16(keys[i + d]);
    const float step = pack_value(std::span(values).subspan(i, dim), &cache[map.value(head, position, 0)]);
    std::memcpy(&cache[map.step(head, position)], &step, sizeof(step));
  }
  return cache;
}

}  // namespace doppler::gpu
