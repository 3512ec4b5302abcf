#if defined(__x86_64__)
// Strips of Q4_K and Q6_K times one to eight tokens: the loops that decode spends its time in. Weights are read once,
// in the order they lie; each vector of them meets all tokens while it is in a register.
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
