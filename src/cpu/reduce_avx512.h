// Sums of four vectors at once, and the loop over rows in fours.
#pragma once

#include <immintrin.h>

#include "cpu/kernels.h"

namespace doppler::cpu::avx512 {
namespace {

// Lane r of the result's low quarter is the sum of v[r]. A single row takes the same additions as one of four, so a
// row's result does not depend on its neighbours.
template <int R>
inline __m512 sum_rows(const __m512* v) {
  static_assert(R == 1 || R == 4);
  const __m512 zero = _mm512_setzero_ps();
  const __m512 b = R == 4 ? v[1] : zero, c = R == 4 ? v[2] : zero, d = R == 4 ? v[3] : zero;
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(v[0], b), _mm512_unpackhi_ps(v[0], b));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  const __m512 abcd = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd))),
                                    _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd))));
  const __m512 half = _mm512_add_ps(abcd, _mm512_shuffle_f32x4(abcd, abcd, 0x4e));
  return _mm512_add_ps(half, _mm512_shuffle_f32x4(half, half, 0xb1));
}

template <int N>
struct Count {
  static constexpr int value = N;
};

template <class Function>
inline void by_rows(const void* weights, size_t stride, int rows, float* out, Function&& function) {
  const uint8_t* w = static_cast<const uint8_t*>(weights);
  int r = 0;
  for (; r + 4 <= rows; r += 4, w += 4 * stride)
    _mm_storeu_ps(out + r, _mm512_castps512_ps128(function(Count<4>{}, w)));
  for (; r < rows; ++r, w += stride) out[r] = _mm_cvtss_f32(_mm512_castps512_ps128(function(Count<1>{}, w)));
}

}  // namespace
}  // namespace doppler::cpu::avx512
