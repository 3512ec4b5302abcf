#if defined(__x86_64__)
// Strips of Q4_K and Q6_K times one to eight tokens.
#include "cpu/gemv_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

// Both add the rows of S strips, each `strip_stride` bytes behind the one before, times T tokens to sums[S][T]. Inline,
// as what follows them: a call per strip costs a tenth where memory is fast.
struct Q4 {
  static size_t strip_bytes(int cols) { return strip_q4_k(cols); }

  template <class Prefetch, int S, int T>
  [[gnu::always_inline]] static void strips(const uint8_t* p, size_t strip_stride, int groups, const ActBlock* const* x,
                                            const Following& following, __m512 (*sums)[T]) {
    for (int b = 0; b * kBlockGroups < groups; ++b) {
      const int here = groups_here(groups, b);
      const Q4Strip at(here);
      const uint8_t* ahead = following.of(p, Prefetch::kAhead);
      fetch<Prefetch, S>(p, ahead, strip_stride, 4);
      __m512 d[S], dmin[S];
#pragma GCC unroll 2
      for (int i = 0; i < S; ++i) {
        d[i] = row_numbers(p + i * strip_stride);
        dmin[i] = row_numbers(p + i * strip_stride + 2 * kStripRows);
      }
      const uint8_t* quants = p + at.quants;
      ahead += at.quants;
      for (int first = 0; first < here; first += 4) {
        Q4Numbers numbers[S];
#pragma GCC unroll 2
        for (int i = 0; i < S; ++i) {
          numbers[i].read(p + i * strip_stride + Q4Strip::kLow + first * kStripRows,
                          p + i * strip_stride + at.high + first * kStripRows / 2);
        }
        const int end = here < first + 4 ? here : first + 4;
        for (int g = first; g < end; ++g, quants += kQ4GroupBytes, ahead += kQ4GroupBytes) {
          const int8_t* q[T];
          __m512i dot[S][T];
#pragma GCC unroll 8
          for (int t = 0; t < T; ++t) {
            q[t] = x[t][b].q + group_offset(g);
#pragma GCC unroll 2
            for (int i = 0; i < S; ++i) dot[i][t] = _mm512_setzero_si512();
          }
          fetch<Prefetch, S>(quants, ahead, strip_stride, 4);
          products<S, T, 8>([&](int i, int step) { return q4_columns(quants + i * strip_stride, step); }, 0, q, dot);
#pragma GCC unroll 2
          for (int i = 0; i < S; ++i) {
            const __m512 scale = _mm512_mul_ps(d[i], Q4Numbers::floats(numbers[i].scale + (g & 3) * kStripRows));
            const __m512 min = _mm512_mul_ps(dmin[i], Q4Numbers::floats(numbers[i].min + (g & 3) * kStripRows));
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) {
              sums[i][t] = subtract_min(add_scaled(sums[i][t], dot[i][t], scale, x[t][b].d[g]), min, x[t][b].ds[g]);
            }
          }
        }
      }
      p += at.end;
    }
  }
};

struct Q6 {
  static size_t strip_bytes(int cols) { return strip_q6_k(cols); }

  template <class Prefetch, int S, int T>
  [[gnu::always_inline]] static void strips(const uint8_t* p, size_t strip_stride, int groups, const ActBlock* const* x,
                                            const Following& following, __m512 (*sums)[T]) {
    const uint8_t* numbers = p;
    for (int b = 0; b * kBlockGroups < groups; ++b) {
      const int here = groups_here(groups, b);
      const Q6Strip at(here, b);
      if (b % 2 == 0) numbers = p;
      const uint8_t* ahead = following.of(p, Prefetch::kAhead);
      fetch<Prefetch, S>(p, ahead, strip_stride, 4);
      __m512 d[S];
#pragma GCC unroll 2
      for (int i = 0; i < S; ++i) d[i] = row_numbers(numbers + i * strip_stride + b % 2 * 2 * kStripRows);
      const uint8_t* scales = p + at.scales;
      const uint8_t* quants = p + at.quants;
      ahead += at.quants;
      for (int g = 0; g < here; ++g, quants += kQ6GroupBytes, ahead += kQ6GroupBytes) {
        fetch<Prefetch, S>(quants, ahead, strip_stride, 6);
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half, scales += kStripRows) {
          const int8_t* q[T];
          __m512i dot[S][T];
#pragma GCC unroll 8
          for (int t = 0; t < T; ++t) {
            q[t] = x[t][b].q + group_offset(g);
#pragma GCC unroll 2
            for (int i = 0; i < S; ++i) dot[i][t] = _mm512_set1_epi32(x[t][b].zero16[2 * g + half]);
          }
          products<S, T, 4>([&](int i, int step) { return q6_columns(quants + i * strip_stride, step); }, 4 * half, q,
                            dot);
#pragma GCC unroll 2
          for (int i = 0; i < S; ++i) {
            const __m512 scale = _mm512_mul_ps(d[i], q6_numbers(scales + i * strip_stride));
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) sums[i][t] = add_scaled(sums[i][t], dot[i][t], scale, x[t][b].d[g]);
          }
        }
      }
      p += at.end;
    }
  }
};

}  // namespace

template <class Prefetch>
void gemv_q4_k(const void* strips, int rows, int cols, const void* const* x, int tokens, float* out, size_t pitch,
               const void* next) {
  gemv<Q4, Prefetch>(strips, rows, cols, x, tokens, out, pitch, next);
}

template <class Prefetch>
void gemv_q6_k(const void* strips, int rows, int cols, const void* const* x, int tokens, float* out, size_t pitch,
               const void* next) {
  gemv<Q6, Prefetch>(strips, rows, cols, x, tokens, out, pitch, next);
}

template void gemv_q4_k<PrefetchOneStrip>(const void*, int, int, const void* const*, int, float*, size_t, const void*);
template void gemv_q4_k<PrefetchTwoStrips>(const void*, int, int, const void* const*, int, float*, size_t, const void*);
template void gemv_q6_k<PrefetchOneStrip>(const void*, int, int, const void* const*, int, float*, size_t, const void*);
template void gemv_q6_k<PrefetchTwoStrips>(const void*, int, int, const void* const*, int, float*, size_t, const void*);

}  // namespace doppler::cpu::avx512
#endif
