// Quantisers of one block, compiled once for each width of vectors.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "convert/quantize_search.h"

namespace doppler::quant {

// The weights of a block times a power of two that brings the largest near 1, so that no square over- or underflows.
template <int N>
struct Scaled {
  alignas(64) float x[N];  // zeros behind the real weights
  float unit = 1;          // stored scale = scale here · unit
  bool zero = false;       // nothing in it that the format could tell from zero

  template <int W>
  DOPPLER_INLINE void set(const float* weights, int n) {
    const Extent e = extent_of<W>(weights, n);
    const float peak = at_least(-e.low, e.high);
    zero = !(peak >= 0x1p-26f);  // the least half is 2^-24: below 2^-25 everything rounds to zero
    const int exponent = zero ? 0 : static_cast<int>(std::bit_cast<uint32_t>(peak) >> 23) - 127;
    unit = std::bit_cast<float>(static_cast<uint32_t>(at_most(exponent, 126) + 127) << 23);
    const float factor = 1.0f / unit;
    for (int i = 0; i < n; ++i) x[i] = weights[i] * factor;
    for (int i = n; i < N; ++i) x[i] = 0;
  }

  // The half that stands for `scale`, and back. Never infinite, and zero for zero only: scales too small for a half
  // become the least one, which the integers that multiply it can still make use of.
  uint16_t to_half(float scale) const {
    const uint16_t half = f32_to_f16(at_most(at_least(scale * unit, -65504.0f), 65504.0f));
    return (half & 0x7fffu) == 0 && scale != 0 ? half | 1u : half;
  }
  float from_half(uint16_t half) const { return f16_to_f32(half) / unit; }
};

DOPPLER_INLINE void put_half(uint8_t* out, uint16_t half) {
  out[0] = static_cast<uint8_t>(half);
  out[1] = static_cast<uint8_t>(half >> 8);
}

// How many of a sub-block's weights are real.
DOPPLER_INLINE int real_count(int n, int begin, int size) {
  const int left = n - begin;
  return left < 0 ? 0 : left > size ? size : left;
}

// levels[count]: the level in Low … High nearest to (x + min) / scale
template <int Low, int High>
DOPPLER_INLINE void assign_levels(const float* x, int count, float scale, float min, int8_t* levels) {
  const float steps = inverse(scale);
  for (int i = 0; i < count; ++i) levels[i] = static_cast<int8_t>(round_within((x[i] + min) * steps, Low, High));
}

// Q8_0, Q5_0 and Q4_0: one scale for 32 weights. Returns it as stored; levels beyond n are zero.
template <int W, int Low, int High>
DOPPLER_INLINE uint16_t quantize_flat(const float* weights, int n, int8_t* levels) {
  Scaled<32> block;
  block.set<W>(weights, n);
  std::memset(levels, 0, 32);
  if (block.zero) return 0;
  Candidates scales, errors;
  fit_symmetric<W, Low, High>(block.x, n, peak_of<W>(block.x, n), scales, errors);
  uint16_t halves[kCandidates];
  for (int k = 0; k < kCandidates; ++k) {
    halves[k] = block.to_half(scales.v[k]);
    scales.v[k] = block.from_half(halves[k]);
  }
  for (int first = 0; first < kCandidates; first += W) {
    store<W>(errors, first, symmetric_error<W, Low, High>(block.x, n, load<W>(scales, first)));
  }
  const int best = best_of(errors);
  assign_levels<Low, High>(block.x, 32, scales.v[best], 0, levels);
  return halves[best];
}

template <int W>
DOPPLER_INLINE void quantize_q8_0(const float* weights, int n, uint8_t* out) {
  int8_t levels[32];
  put_half(out, quantize_flat<W, -128, 127>(weights, n, levels));
  std::memcpy(out + 2, levels, 32);
}

template <int W>
DOPPLER_INLINE void quantize_q4_0(const float* weights, int n, uint8_t* out) {
  int8_t levels[32];
  put_half(out, quantize_flat<W, -8, 7>(weights, n, levels));
  for (int i = 0; i < 16; ++i) out[2 + i] = static_cast<uint8_t>((levels[i] + 8) | (levels[16 + i] + 8) << 4);
}

template <int W>
DOPPLER_INLINE void quantize_q5_0(const float* weights, int n, uint8_t* out) {
  int8_t levels[32];
  put_half(out, quantize_flat<W, -16, 15>(weights, n, levels));
  uint32_t high = 0;  // bit 4 of each level
  for (int i = 0; i < 32; ++i) high |= static_cast<uint32_t>((levels[i] + 16) >> 4 & 1) << i;
  std::memcpy(out + 2, &high, sizeof high);
  for (int i = 0; i < 16; ++i)
    out[6 + i] = static_cast<uint8_t>(((levels[i] + 16) & 15) | ((levels[16 + i] + 16) & 15) << 4);
}

}  // namespace doppler::quant
