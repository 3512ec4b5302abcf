// Attention from its definition, in double, and how far a kernel in f32 may be from it.
#pragma once

#include <span>
#include <vector>

#include "gpu/ops/attention.h"

namespace doppler::gpu {

struct AttentionTruth {
  std::vector<double> expected, bound;  // [tokens, heads · head_dim]
};

// q [tokens, heads · head_dim] rotated; keys and values [positions, kv_heads · head_dim] as the cache holds them, from
// position 0; row 0 of q is position `first`. q_error: how far each element of q may be off already.
AttentionTruth attention_truth(const AttentionShape& shape, const std::vector<float>& q, const std::vector<float>& keys,
                               const std::vector<float>& values, const std::vector<float>& sinks, uint32_t first,
                               double q_error);

// Pages for what `tokens` tokens at the end of `context` see.
uint32_t pages_for(uint32_t context, uint32_t window, uint32_t tokens);

// A layer's cache after keys and values [positions, kv_heads · head_dim] were stored in order; `fill` where nothing
// was. Pages lie backwards, and those that slid out of a window are used again. The layout of ops/lib/kv_cache.wgsl,
// written a second time on purpose.
struct CacheMap {
  explicit CacheMap(const AttentionShape& s) : shape(s) {}
  AttentionShape shape;
  size_t key(size_t kv_head, size_t position, size_t d) const;  // in elements of two bytes
  size_t value(size_t kv_head, size_t position, size_t d) const;
  size_t step(size_t kv_head, size_t position) const;  // an f32: two elements
  size_t elements() const;
  // DecodeState at a position, and the pages up to `end`.
  std::vector<uint32_t> state(uint32_t position, uint32_t end) const;

 private:
  size_t page(size_t position) const;  // where it begins
};
// A value as the cache holds it: integers, and the step they are counted in; and back.
float pack_value(std::span<const float> value, uint16_t* packed);
void unpack_value(std::span<const uint16_t> packed, float step, float* value);
// Numbers that a cache can hold: keys rounded to f16, each value of head_dim numbers packed and unpacked.
std::vector<float> as_cached_keys(std::vector<float> keys);
std::vector<float> as_cached_values(std::vector<float> values, size_t head_dim);
// Fills what was never stored: a key, and a value's step, reads as NaN.
constexpr uint16_t kUnsetElement = 0xffff;
std::vector<uint16_t> packed_cache(const AttentionShape& shape, const std::vector<float>& keys,
                                   const std::vector<float>& values, uint16_t fill);

}  // namespace doppler::gpu
