// Quantisers of Q4_K and Q6_K blocks (256 weights), compiled once for each width of vectors. See quantize.h.
#pragma once

#include "convert/quantize_blocks.h"

namespace doppler::quant {

// Step 1: which way a Q4_K block counts.
struct Way {
  bool down = false;    // steps go downwards from a ceiling: the weights are negated, then d and dmin
  bool raised = false;  // the floor of the (negated) weights lies above zero: dmin is negative, otherwise positive
};

// Where the levels of a sub-block begin, given its extent the way the block counts.
DOPPLER_INLINE float floor_of(Extent e, bool raised) { return (e.low < 0) != raised ? e.low : 0; }
DOPPLER_INLINE Extent turned(Extent e, bool down) { return down ? Extent{-e.high, -e.low} : e; }

// Expected squared error but for a factor: the steps of the weights, and those of the floors where there are any.
DOPPLER_INLINE float cost_of(const Extent* extents, int count, Way way) {
  float steps = 0, deepest = 0;
  int floors = 0;
  for (int j = 0; j < count; ++j) {
    const Extent e = turned(extents[j], way.down);
    if (way.raised && e.low < 0) return 1e30f;  // cannot express what lies below zero
    const float floor = floor_of(e, way.raised), step = (e.high - floor) / 15.0f;
    steps += step * step;
    deepest = at_least(floor < 0 ? -floor : floor, deepest);
    floors += floor != 0;
  }
  const float floor_step = deepest / 63.0f;
  return steps + static_cast<float>(floors) * floor_step * floor_step;
}

DOPPLER_INLINE Way choose_way(const Extent* extents, int count) {
  Way best;
  float least = cost_of(extents, count, best);
  for (const Way way : {Way{true, false}, Way{false, true}, Way{true, true}}) {
    const float cost = cost_of(extents, count, way);
    if (cost < least) {
      least = cost;
      best = way;
    }
  }
  return best;
}

struct AffineBlock {
  uint16_t d = 0, dmin = 0;
  uint8_t scale[8] = {}, min[8] = {};
  int8_t levels[256] = {};
};

// Minimum, as a multiple of dmin, that suits the scale best while the levels stay.
template <typename V>
DOPPLER_INLINE V fitting_min(const AffineFit& fit, int n, const V& scale, const V& mins_per_unit) {
  return (scale * fit.sum_q - fit.sum_x) * (1.0f / static_cast<float>(n)) * mins_per_unit;
}

// Step 4 for one sub-block: the best of the neighbouring scales and minima.
template <int W>
DOPPLER_INLINE void settle(const float* x, int n, const AffineFit& fit, float d, float dmin, uint8_t& scale,
                           uint8_t& min) {
  using V = Lanes<W>;
  Candidates scales, shifts, mins, errors;
  for (int k = 0; k < kCandidates; ++k) {  // the sixteenth: no steps at all
    scales.v[k] = k == 15 ? 0 : at_most(at_least(static_cast<float>(scale + k / 3 - 2), 0.0f), 63.0f);
    shifts.v[k] = k == 15 ? 0 : static_cast<float>(k % 3 - 1);
  }
  for (int first = 0; first < kCandidates; first += W) {
    const V lane_scale = load<W>(scales, first) * d;
    const V fitting = fitting_min(fit, n, lane_scale, V{} + inverse(dmin));
    const V lane_min = round_within(fitting + load<W>(shifts, first), 0, 63);
    store<W>(mins, first, lane_min);
    store<W>(errors, first, affine_error<W>(x, n, lane_scale, lane_min * dmin));
  }
  const int best = best_of(errors);
  scale = static_cast<uint8_t>(scales.v[best]);
  min = static_cast<uint8_t>(mins.v[best]);
}

template <int W>
DOPPLER_INLINE AffineBlock search_affine_block(const float* weights, int n) {
  using V = Lanes<W>;
  AffineBlock result;
  Scaled<256> block;
  block.set<W>(weights, n);
  if (block.zero) return result;

  const int subs = (n + 31) / 32;
  Extent extents[8];
  for (int j = 0; j < subs; ++j) extents[j] = extent_of<W>(block.x + 32 * j, real_count(n, 32 * j, 32));
  const Way way = choose_way(extents, subs);
  if (way.down) {
    for (float& x : block.x) x = -x;
  }

  AffineFit fits[8];
  float largest_scale = 0, largest_min = 0;
  const MinRange range = way.raised ? MinRange{-1e30f, 0} : MinRange{0, 1e30f};
  for (int j = 0; j < subs; ++j) {
    const float* x = block.x + 32 * j;
    const int count = real_count(n, 32 * j, 32);
    const Extent e = turned(extents[j], way.down);
    const float floor = floor_of(e, way.raised);
    if (floor < e.high) {
      fits[j] = fit_affine<W>(x, count, floor, e.high, range);
    } else {
      fits[j] = {0, -floor, 0, floor * static_cast<float>(count)};  // one value throughout
    }
    largest_scale = at_least(fits[j].scale, largest_scale);
    largest_min = way.raised ? at_most(fits[j].min, largest_min) : at_least(fits[j].min, largest_min);
  }

  // Step 3
  uint16_t d_halves[4], dmin_halves[4];
  for (int k = 0; k < 4; ++k) {
    d_halves[k] = block.to_half(largest_scale / static_cast<float>(63 - k));
    dmin_halves[k] = block.to_half(largest_min / static_cast<float>(63 - k));
  }
  Candidates d, dmin, errors;
  for (int k = 0; k < kCandidates; ++k) {
    d.v[k] = block.from_half(d_halves[k / 4]);
    dmin.v[k] = block.from_half(dmin_halves[k % 4]);
  }
  for (int first = 0; first < kCandidates; first += W) {
    const V lane_d = load<W>(d, first), lane_dmin = load<W>(dmin, first);
    const V per_d = inverse(lane_d), per_dmin = inverse(lane_dmin);
    V error = V{};
    for (int j = 0; j < subs; ++j) {
      const int count = real_count(n, 32 * j, 32);
      const V scale = round_within(fits[j].scale * per_d, 0, 63) * lane_d;
      const V min = round_within(fitting_min(fits[j], count, scale, per_dmin), 0, 63) * lane_dmin;
      error += affine_error<W>(block.x + 32 * j, count, scale, min);
    }
    store<W>(errors, first, error);
  }
  const int best = best_of(errors);
  const float best_d = d.v[best], best_dmin = dmin.v[best];
  result.d = d_halves[best / 4];
  result.dmin = dmin_halves[best % 4];

  for (int j = 0; j < subs; ++j) {
    const float* x = block.x + 32 * j;
    result.scale[j] = static_cast<uint8_t>(round_within(fits[j].scale * inverse(best_d), 0, 63));
    settle<W>(x, real_count(n, 32 * j, 32), fits[j], best_d, best_dmin, result.scale[j], result.min[j]);
    const float scale = best_d * static_cast<float>(result.scale[j]);
    const float min = best_dmin * static_cast<float>(result.min[j]);
    assign_levels<0, 15>(x, 32, scale, min, result.levels + 32 * j);
  }
  if (way.down && result.d != 0) result.d ^= 0x8000u;
  if (way.down && result.dmin != 0) result.dmin ^= 0x8000u;
  return result;
}

// d, dmin, eight 6-bit scales and minima in twelve bytes, nibbles[128]
template <int W>
DOPPLER_INLINE void quantize_q4_k(const float* weights, int n, uint8_t* out) {
  const AffineBlock b = search_affine_block<W>(weights, n);
  put_half(out, b.d);
  put_half(out + 2, b.dmin);
  for (int j = 0; j < 4; ++j) {
    out[4 + j] = static_cast<uint8_t>(b.scale[j] | (b.scale[j + 4] >> 4) << 6);
    out[8 + j] = static_cast<uint8_t>(b.min[j] | (b.min[j + 4] >> 4) << 6);
    out[12 + j] = static_cast<uint8_t>((b.scale[j + 4] & 15) | (b.min[j + 4] & 15) << 4);
  }
  for (int pair = 0; pair < 4; ++pair) {
    const int8_t* q = b.levels + 64 * pair;
    uint8_t* bytes = out + 16 + 32 * pair;
    for (int i = 0; i < 32; ++i) bytes[i] = static_cast<uint8_t>(q[i] | q[32 + i] << 4);
  }
}

struct SymmetricBlock {
  uint16_t d = 0;
  int8_t scale[16] = {};
  int8_t levels[256] = {};  // -32 … 31
};

template <int W>
DOPPLER_INLINE SymmetricBlock search_symmetric_block(const float* weights, int n) {
  using V = Lanes<W>;
  SymmetricBlock result;
  Scaled<256> block;
  block.set<W>(weights, n);
  if (block.zero) return result;

  const int subs = (n + 15) / 16;
  float fits[16], largest = 0;
  Candidates scales, errors;
  for (int j = 0; j < subs; ++j) {
    const float* x = block.x + 16 * j;
    const int count = real_count(n, 16 * j, 16);
    const float peak = peak_of<W>(x, count);
    fits[j] = 0;
    if (peak == 0) continue;
    fit_symmetric<W, -32, 31>(x, count, peak, scales, errors);
    fits[j] = scales.v[best_of(errors)];
    if (fits[j] * fits[j] > largest * largest) largest = fits[j];
  }

  // The largest scale becomes -128 … -121 or 120 … 127.
  uint16_t halves[kCandidates];
  Candidates d;
  for (int k = 0; k < kCandidates; ++k) {
    halves[k] = block.to_half(largest / static_cast<float>(k < 8 ? k - 128 : 135 - k));
    d.v[k] = block.from_half(halves[k]);
  }
  for (int first = 0; first < kCandidates; first += W) {
    const V lane_d = load<W>(d, first), per_d = inverse(lane_d);
    V error = V{};
    for (int j = 0; j < subs; ++j) {
      const V scale = round_within(fits[j] * per_d, -128, 127) * lane_d;
      error += symmetric_error<W, -32, 31>(block.x + 16 * j, real_count(n, 16 * j, 16), scale);
    }
    store<W>(errors, first, error);
  }
  const int best = best_of(errors);
  result.d = halves[best];
  const float best_d = d.v[best];

  // Each sub-block's scale among its sixteen nearest.
  for (int j = 0; j < subs; ++j) {
    const float* x = block.x + 16 * j;
    const float nearest = round_within(fits[j] * inverse(best_d), -128, 127);
    for (int k = 0; k < kCandidates; ++k) {
      scales.v[k] = at_most(at_least(nearest + static_cast<float>(k - 8), -128.0f), 127.0f);
    }
    for (int first = 0; first < kCandidates; first += W) {
      const V scale = load<W>(scales, first) * best_d;
      store<W>(errors, first, symmetric_error<W, -32, 31>(x, real_count(n, 16 * j, 16), scale));
    }
    result.scale[j] = static_cast<int8_t>(scales.v[best_of(errors)]);
    assign_levels<-32, 31>(x, 16, best_d * static_cast<float>(result.scale[j]), 0, result.levels + 16 * j);
  }
  return result;
}

// low nibbles[128], high two bits[64], int8 scales[16], d; each half of 128 weights on its own
template <int W>
DOPPLER_INLINE void quantize_q6_k(const float* weights, int n, uint8_t* out) {
  const SymmetricBlock b = search_symmetric_block<W>(weights, n);
  for (int half = 0; half < 2; ++half) {
    uint8_t q[128];
    for (int i = 0; i < 128; ++i) q[i] = static_cast<uint8_t>(b.levels[128 * half + i] + 32);
    uint8_t *low = out + 64 * half, *high = out + 128 + 32 * half;
    for (int i = 0; i < 64; ++i) low[i] = static_cast<uint8_t>((q[i] & 15) | (q[64 + i] & 15) << 4);
    for (int i = 0; i < 32; ++i) {
      high[i] = static_cast<uint8_t>(q[i] >> 4 | q[32 + i] >> 4 << 2 | q[64 + i] >> 4 << 4 | q[96 + i] >> 4 << 6);
    }
  }
  std::memcpy(out + 192, b.scale, 16);
  put_half(out + 208, b.d);
}

}  // namespace doppler::quant
