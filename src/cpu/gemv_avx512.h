// How strips are multiplied with one to eight tokens: the loops that decode spends its time in. Weights are read once,
// in the order they lie; each vector of them meets all tokens while it is in a register.
#pragma once

#include "cpu/formats_avx512.h"
#include "cpu/strips_avx512.h"
#include "cpu/tile_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

// What is fetched while weights at some place are multiplied: those Prefetch::kAhead bytes on or, towards the end, the
// first of those that the thread reads after them.
struct Following {
  const uint8_t* end;
  ptrdiff_t jump;  // from there to the next ones
  const uint8_t* of(const uint8_t* p, ptrdiff_t ahead) const { return p + (p + ahead < end ? ahead : ahead + jump); }
};

// The compiler, if it knew how far from another this place is, would keep a register for every line of it.
inline const uint8_t* opaque(const uint8_t* p) {
  asm("" : "+r"(p));
  return p;
}

// `vectors` of each of S strips.
template <class Prefetch, int S>
inline void fetch(const uint8_t* p, const uint8_t* ahead, size_t strip_stride, int vectors) {
#pragma GCC unroll 2
  for (int i = 0; i < S; ++i) {
    const uint8_t *here = opaque(p + i * strip_stride), *there = opaque(ahead + i * strip_stride);
#pragma GCC unroll 6
    for (int v = 0; v < vectors; ++v) Prefetch::fetch(here + v * kVector, there + v * kVector);
  }
}

// dot[i][t] += `Steps` times four columns of strip i, from step `first` of a group on. With one strip and one token
// alternate steps have sums of their own: a single chain of additions would take longer than the rest.
template <int S, int T, int Steps, class Columns>
inline void products(Columns&& columns, int first, const int8_t* const* x, __m512i (*dot)[T]) {
  __m512i other = _mm512_setzero_si512();
#pragma GCC unroll 8
  for (int step = first; step < first + Steps; ++step) {
    __m512i w[S];
#pragma GCC unroll 2
    for (int i = 0; i < S; ++i) w[i] = columns(i, step);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const __m512i v = four(x[t] + 4 * step);
#pragma GCC unroll 2
      for (int i = 0; i < S; ++i) {
        __m512i& sum = S * T == 1 && step % 2 ? other : dot[i][t];
        sum = _mm512_dpbusd_epi32(sum, w[i], v);
      }
    }
  }
  if (S * T == 1) dot[0][0] = _mm512_add_epi32(dot[0][0], other);
}

// One group's terms: sum + d_x · (scale · Σ q·x) − min · (d_x · Σ x).
inline __m512 add_scaled(__m512 sum, __m512i dot, __m512 scale, float d) {
  return _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(dot), scale), _mm512_set1_ps(d), sum);
}
inline __m512 subtract_min(__m512 sum, __m512 min, float ds) { return _mm512_fnmadd_ps(min, _mm512_set1_ps(ds), sum); }

// rows ≤ S · kStripRows.
template <class Quants, class Prefetch, int S, int T>
[[gnu::always_inline]] inline void gemv_strips(const uint8_t* p, size_t strip_stride, int rows, int cols,
                                               const ActBlock* const* x, const Following& following, float* out,
                                               size_t pitch) {
  __m512 sums[S][T];
  for (int i = 0; i < S; ++i) {
    for (int t = 0; t < T; ++t) sums[i][t] = _mm512_setzero_ps();
  }
  Quants::template strips<Prefetch, S, T>(p, strip_stride, groups_of(cols), x, following, sums);
  for (int i = 0; i < S; ++i, rows -= kStripRows, out += kStripRows) {
    const __mmask16 here = static_cast<__mmask16>(rows < kStripRows ? (1u << rows) - 1u : 0xffffu);
    for (int t = 0; t < T; ++t) _mm512_mask_storeu_ps(out + static_cast<size_t>(t) * pitch, here, sums[i][t]);
  }
}

template <class Quants, class Prefetch, int T>
void gemv_tokens(const void* strips, int rows, int cols, const void* const* x, float* out, size_t pitch,
                 const void* next) {
  constexpr int kTogether = T == 1 ? Prefetch::kStrips : 1;
  const uint8_t* p = static_cast<const uint8_t*>(strips);
  const size_t strip_stride = Quants::strip_bytes(cols);
  const ActBlock* a[T];
  for (int t = 0; t < T; ++t) a[t] = static_cast<const ActBlock*>(x[t]);
  const uint8_t* end = p + static_cast<size_t>((rows + kStripRows - 1) / kStripRows) * strip_stride;
  const Following following{end, next ? reinterpret_cast<intptr_t>(next) - reinterpret_cast<intptr_t>(end) : 0};
  int r = 0;
  for (; rows - r > (kTogether - 1) * kStripRows; r += kTogether * kStripRows, p += kTogether * strip_stride) {
    gemv_strips<Quants, Prefetch, kTogether, T>(p, strip_stride, rows - r, cols, a, following, out + r, pitch);
  }
  if (r < rows) gemv_strips<Quants, Prefetch, 1, T>(p, strip_stride, rows - r, cols, a, following, out + r, pitch);
}

template <class Quants, class Prefetch>
void gemv(const void* strips, int rows, int cols, const void* const* x, int tokens, float* out, size_t pitch,
          const void* next) {
  switch (tokens) {
    case 1: return gemv_tokens<Quants, Prefetch, 1>(strips, rows, cols, x, out, pitch, next);
    case 2: return gemv_tokens<Quants, Prefetch, 2>(strips, rows, cols, x, out, pitch, next);
    case 3: return gemv_tokens<Quants, Prefetch, 3>(strips, rows, cols, x, out, pitch, next);
    case 4: return gemv_tokens<Quants, Prefetch, 4>(strips, rows, cols, x, out, pitch, next);
    case 5: return gemv_tokens<Quants, Prefetch, 5>(strips, rows, cols, x, out, pitch, next);
    case 6: return gemv_tokens<Quants, Prefetch, 6>(strips, rows, cols, x, out, pitch, next);
    case 7: return gemv_tokens<Quants, Prefetch, 7>(strips, rows, cols, x, out, pitch, next);
    default: return gemv_tokens<Quants, Prefetch, 8>(strips, rows, cols, x, out, pitch, next);
  }
}

}  // namespace
}  // namespace doppler::cpu::avx512
