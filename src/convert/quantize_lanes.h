// Sixteen candidates side by side: the vectors in which the quantisers search.
//
// A search tries sixteen values of a parameter on the same weights, one candidate a lane, W lanes at a time, W being
// what one register of the machine holds. A lane never looks at another lane, there is no sum across lanes and no fused
// multiply-add; so the results are the same whatever W is.
#pragma once

#include <bit>
#include <cstdint>

// The widest vectors are only ever passed inside inlined functions: how they would be passed outside is no matter.
#pragma GCC diagnostic ignored "-Wpsabi"

#define DOPPLER_INLINE inline __attribute__((always_inline))

namespace doppler::quant {

constexpr int kCandidates = 16;

template <int W>
struct LanesOf {
  typedef float Floats __attribute__((vector_size(W * sizeof(float))));
  typedef int32_t Ints __attribute__((vector_size(W * sizeof(float))));
};
template <int W>
using Lanes = typename LanesOf<W>::Floats;

// One value for each candidate.
struct alignas(64) Candidates {
  float v[kCandidates];
};

template <int W>
DOPPLER_INLINE Lanes<W> load(const Candidates& c, int first) {
  Lanes<W> lanes;
  __builtin_memcpy(&lanes, c.v + first, sizeof lanes);
  return lanes;
}
template <int W>
DOPPLER_INLINE void store(Candidates& c, int first, const Lanes<W>& lanes) {
  __builtin_memcpy(c.v + first, &lanes, sizeof lanes);
}

// Of a NaN both make `bound`.
template <typename V>
DOPPLER_INLINE V at_least(const V& value, const V& bound) {
  return value > bound ? value : bound;
}
template <typename V>
DOPPLER_INLINE V at_most(const V& value, const V& bound) {
  return value < bound ? value : bound;
}

// Adding 1.5·2^23 leaves a float only its integer part, rounded to the nearest, ties to even; good for |value| < 2^22.
constexpr float kRounder = 12582912.0f;

// The integer nearest to `value` within [low, high].
DOPPLER_INLINE float round_within(float value, float low, float high) {
  return at_most(at_least(value + kRounder, kRounder + low), kRounder + high) - kRounder;
}
template <typename V>
DOPPLER_INLINE V round_within(const V& value, float low, float high) {
  constexpr int W = sizeof(V) / sizeof(float);
  const V rounded = value + kRounder;
  if constexpr (W == 4) {  // the oldest instruction sets compare floats best
    return at_most(at_least(rounded, V{} + (kRounder + low)), V{} + (kRounder + high)) - kRounder;
  } else {  // between positive bounds floats are ordered as their bits are, and compilers know integer min and max
    using Ints = typename LanesOf<W>::Ints;
    const Ints floor = Ints{} + std::bit_cast<int32_t>(kRounder + low);
    const Ints ceiling = Ints{} + std::bit_cast<int32_t>(kRounder + high);
    return reinterpret_cast<V>(at_most(at_least(reinterpret_cast<Ints>(rounded), floor), ceiling)) - kRounder;
  }
}

// 1 / value, and 0 for 0: a step of width zero keeps every weight at level zero.
template <typename V>
DOPPLER_INLINE V inverse(const V& value) {
  const V zero = V{};
  return value != zero ? 1.0f / value : zero;
}

// The candidate with the least error; the first of equals.
inline int best_of(const Candidates& error) {
  int best = 0;
  for (int i = 1; i < kCandidates; ++i) {
    if (error.v[i] < error.v[best]) best = i;
  }
  return best;
}

}  // namespace doppler::quant
