// The searches behind the quantisers, over sixteen candidates at once (quantize_lanes.h).
//
// Two models of a sub-block of n weights x:
//   affine:    x ≈ scale·q − min, q in 0 … 15               (Q4_K)
//   symmetric: x ≈ scale·q,       q in Low … High           (Q6_K, Q8_0, Q4_0)
#pragma once

#include "convert/quantize_lanes.h"

namespace doppler::quant {

// A sub-block's best line on its own, and what is needed to find the minimum that suits another scale.
struct AffineFit {
  float scale = 0, min = 0;
  float sum_q = 0;  // of the levels that the fit gives
  float sum_x = 0;
};

// Where a sub-block's minimum may lie: the block's dmin has one sign for all.
struct MinRange {
  float low, high;
};

// Four sums side by side are four times as quick as one, and every machine adds in the same order.
DOPPLER_INLINE float sum_of(const float* x, int n) {
  float parts[4] = {0, 0, 0, 0};
  int i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int j = 0; j < 4; ++j) parts[j] += x[i + j];
  }
  for (; i < n; ++i) parts[0] += x[i];
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

// The least and the greatest of x[n], n >= 1.
struct Extent {
  float low = 0, high = 0;
};
template <int W>
DOPPLER_INLINE Extent extent_of(const float* x, int n) {
  Extent e = {x[0], x[0]};
  int i = 0;
  if (n >= W) {
    Lanes<W> low, high, next;
    __builtin_memcpy(&low, x, sizeof low);
    high = low;
    for (i = W; i + W <= n; i += W) {
      __builtin_memcpy(&next, x + i, sizeof next);
      low = at_most(next, low);
      high = at_least(next, high);
    }
    for (int lane = 0; lane < W; ++lane) {
      e.low = at_most(low[lane], e.low);
      e.high = at_least(high[lane], e.high);
    }
  }
  for (; i < n; ++i) {
    e.low = at_most(x[i], e.low);
    e.high = at_least(x[i], e.high);
  }
  return e;
}

// The one of the largest magnitude.
template <int W>
DOPPLER_INLINE float peak_of(const float* x, int n) {
  const Extent e = extent_of<W>(x, n);
  return -e.low > e.high ? e.low : e.high;
}

// Step 2 of quantize.h. `low` and `high` are the ends of the levels: the least weight (or zero, where the minimum may
// not go further) and the greatest; low < high.
template <int W>
DOPPLER_INLINE AffineFit fit_affine(const float* x, int n, float low, float high, MinRange range) {
  using V = Lanes<W>;
  const float sum = sum_of(x, n);
  const float count = static_cast<float>(n);

  Candidates widths, scales, mins, sums, errors;
  for (int k = 0; k < kCandidates; ++k) widths.v[k] = (high - low) / (13.0f + 0.2f * static_cast<float>(k));
  for (int first = 0; first < kCandidates; first += W) {
    V scale = load<W>(widths, first), min = V{} - low;
    V sum_q, sum_qq, sum_xq;
    for (int pass = 0; pass < 2; ++pass) {
      const V steps = inverse(scale);
      sum_q = sum_qq = sum_xq = V{};
      for (int i = 0; i < n; ++i) {
        const V q = round_within((x[i] + min) * steps, 0, 15);
        sum_q += q;
        sum_qq += q * q;
        sum_xq += q * x[i];
      }
      // The line through (q, x); with a minimum that may not be, the line through the nearest one that may.
      const V spread = count * sum_qq - sum_q * sum_q;
      const V free_scale = (count * sum_xq - sum * sum_q) / spread;
      const V free_min = (free_scale * sum_q - sum) / count;
      const V held_min = at_most(at_least(free_min, V{} + range.low), V{} + range.high);
      const V held_scale = (sum_xq + held_min * sum_q) / sum_qq;
      const V new_scale = held_min == free_min ? free_scale : held_scale;
      const V zero = V{};
      scale = spread > zero ? new_scale : scale;  // not if all weights fell on one level
      min = spread > zero ? held_min : min;
    }
    // sum (x − scale·q + min)², less the sum of x² that all candidates share
    const V error = scale * (scale * sum_qq - 2.0f * (sum_xq + min * sum_q)) + min * (2.0f * sum + count * min);
    store<W>(scales, first, scale);
    store<W>(mins, first, min);
    store<W>(sums, first, sum_q);
    store<W>(errors, first, error);
  }
  const int best = best_of(errors);
  return {scales.v[best], mins.v[best], sums.v[best], sum};
}

// Squared error of the weights when each takes its nearest level.
template <int W>
DOPPLER_INLINE Lanes<W> affine_error(const float* x, int n, const Lanes<W>& scale, const Lanes<W>& min) {
  using V = Lanes<W>;
  const V steps = inverse(scale);
  V error = V{};
  for (int i = 0; i < n; ++i) {
    const V above = x[i] + min;
    const V miss = above - scale * round_within(above * steps, 0, 15);
    error += miss * miss;
  }
  return error;
}

template <int W, int Low, int High>
DOPPLER_INLINE Lanes<W> symmetric_error(const float* x, int n, const Lanes<W>& scale) {
  using V = Lanes<W>;
  const V steps = inverse(scale);
  V error = V{};
  for (int i = 0; i < n; ++i) {
    const V miss = x[i] - scale * round_within(x[i] * steps, Low, High);
    error += miss * miss;
  }
  return error;
}

// Sixteen scales near the one that brings `peak`, the weight of the largest magnitude (not zero), to the end of the
// levels: eight to the end Low and eight, of the other sign, to the end High; each with the least squares for the
// levels it gives. `errors` belong to these levels and lack the sum of x², which all candidates share.
template <int W, int Low, int High>
DOPPLER_INLINE void fit_symmetric(const float* x, int n, float peak, Candidates& scales, Candidates& errors) {
  using V = Lanes<W>;
  constexpr float kReach = High >= 31 ? 0.35f : 0.25f;  // how far apart the candidates lie, in levels
  for (int k = 0; k < kCandidates; ++k) {
    const float shift = kReach * static_cast<float>(k / 2) - 3 * kReach;
    scales.v[k] = peak / (k % 2 == 0 ? static_cast<float>(Low) - shift : static_cast<float>(High) + shift);
  }
  for (int first = 0; first < kCandidates; first += W) {
    V scale = load<W>(scales, first);
    const V steps = inverse(scale);
    V sum_qq = V{}, sum_xq = V{};
    for (int i = 0; i < n; ++i) {
      const V q = round_within(x[i] * steps, Low, High);
      sum_qq += q * q;
      sum_xq += q * x[i];
    }
    const V zero = V{};
    scale = sum_qq > zero ? sum_xq / sum_qq : scale;
    store<W>(scales, first, scale);
    store<W>(errors, first, -(scale * sum_xq));
  }
}

}  // namespace doppler::quant
