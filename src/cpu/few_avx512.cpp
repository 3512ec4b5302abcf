#if defined(__x86_64__)
// Strips of Q4_K and Q6_K times one to eight tokens: the loops that decode spends its time in. Weights are read once,
// in the order they lie; each vector of them meets all tokens while it is in a register.
#include "cpu/formats_avx512.h"
#include "cpu/strips_avx512.h"
#include "cpu/tile_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

// What is fetched while weights at some place are multiplied: those Way::kAhead bytes on or, towards the end, the first
// of those that the thread reads after them.
struct Following {
  const uint8_t* end;
  ptrdiff_t jump;  // from there to the next ones
  const uint8_t* of(const uint8_t* p, ptrdiff_t ahead) const { return p + (p + ahead < end ? ahead : ahead + jump); }
};

// The compiler, if it knew how far from another this place is, would keep a register for every line of it.
inline const uint8_t* a_place(const uint8_t* p) {
  asm("" : "+r"(p));
  return p;
}

// `vectors` of each of S strips.
template <class Way, int S>
inline void fetch(const uint8_t* p, const uint8_t* ahead, size_t far, int vectors) {
#pragma GCC unroll 2
  for (int i = 0; i < S; ++i) {
    const uint8_t *here = a_place(p + i * far), *there = a_place(ahead + i * far);
#pragma GCC unroll 6
    for (int v = 0; v < vectors; ++v) Way::fetch(here + v * kVector, there + v * kVector);
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
inline __m512 take_min(__m512 sum, __m512 min, float ds) { return _mm512_fnmadd_ps(min, _mm512_set1_ps(ds), sum); }

// Both add the rows of S strips, each `far` bytes behind the one before, times T tokens to sums[S][T]. Inline, as what
// follows them: a call a strip costs a tenth where memory is fast.
struct Q4 {
  static size_t strip_bytes(int cols) { return strip_q4_k(cols); }

  template <class Way, int S, int T>
  [[gnu::always_inline]] static void strips(const uint8_t* p, size_t far, int groups, const ActBlock* const* x,
                                            const Following& following, __m512 (*sums)[T]) {
    for (int b = 0; b * kBlockGroups < groups; ++b) {
      const int here = groups_here(groups, b);
      const Q4Strip at(here);
      const uint8_t* ahead = following.of(p, Way::kAhead);
      fetch<Way, S>(p, ahead, far, 4);
      __m512 d[S], dmin[S];
#pragma GCC unroll 2
      for (int i = 0; i < S; ++i) {
        d[i] = row_numbers(p + i * far);
        dmin[i] = row_numbers(p + i * far + 2 * kStripRows);
      }
      const uint8_t* quants = p + at.quants;
      ahead += at.quants;
      for (int first = 0; first < here; first += 4) {
        Q4Numbers numbers[S];
#pragma GCC unroll 2
        for (int i = 0; i < S; ++i) {
          numbers[i].read(p + i * far + Q4Strip::kLow + first * kStripRows,
                          p + i * far + at.high + first * kStripRows / 2);
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
          fetch<Way, S>(quants, ahead, far, 4);
          products<S, T, 8>([&](int i, int step) { return q4_columns(quants + i * far, step); }, 0, q, dot);
#pragma GCC unroll 2
          for (int i = 0; i < S; ++i) {
            const __m512 scale = _mm512_mul_ps(d[i], Q4Numbers::floats(numbers[i].scale + (g & 3) * kStripRows));
            const __m512 min = _mm512_mul_ps(dmin[i], Q4Numbers::floats(numbers[i].min + (g & 3) * kStripRows));
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) {
              sums[i][t] = take_min(add_scaled(sums[i][t], dot[i][t], scale, x[t][b].d[g]), min, x[t][b].ds[g]);
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

  template <class Way, int S, int T>
  [[gnu::always_inline]] static void strips(const uint8_t* p, size_t far, int groups, const ActBlock* const* x,
                                            const Following& following, __m512 (*sums)[T]) {
    const uint8_t* numbers = p;
    for (int b = 0; b * kBlockGroups < groups; ++b) {
      const int here = groups_here(groups, b);
      const Q6Strip at(here, b);
      if (b % 2 == 0) numbers = p;
      const uint8_t* ahead = following.of(p, Way::kAhead);
      fetch<Way, S>(p, ahead, far, 4);
      __m512 d[S];
#pragma GCC unroll 2
      for (int i = 0; i < S; ++i) d[i] = row_numbers(numbers + i * far + b % 2 * 2 * kStripRows);
      const uint8_t* scales = p + at.scales;
      const uint8_t* quants = p + at.quants;
      ahead += at.quants;
      for (int g = 0; g < here; ++g, quants += kQ6GroupBytes, ahead += kQ6GroupBytes) {
        fetch<Way, S>(quants, ahead, far, 6);
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
          products<S, T, 4>([&](int i, int step) { return q6_columns(quants + i * far, step); }, 4 * half, q, dot);
#pragma GCC unroll 2
          for (int i = 0; i < S; ++i) {
            const __m512 scale = _mm512_mul_ps(d[i], q6_numbers(scales + i * far));
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
template <class Quants, class Way, int S, int T>
[[gnu::always_inline]] inline void times_strips(const uint8_t* p, size_t far, int rows, int cols,
                                                const ActBlock* const* x, const Following& following, float* out,
                                                size_t pitch) {
  __m512 sums[S][T];
  for (int i = 0; i < S; ++i) {
    for (int t = 0; t < T; ++t) sums[i][t] = _mm512_setzero_ps();
  }
  Quants::template strips<Way, S, T>(p, far, groups_of(cols), x, following, sums);
  for (int i = 0; i < S; ++i, rows -= kStripRows, out += kStripRows) {
    const __mmask16 here = static_cast<__mmask16>(rows < kStripRows ? (1u << rows) - 1u : 0xffffu);
    for (int t = 0; t < T; ++t) _mm512_mask_storeu_ps(out + static_cast<size_t>(t) * pitch, here, sums[i][t]);
  }
}

template <class Quants, class Way, int T>
void times_tokens(const void* strips, int rows, int cols, const void* const* x, float* out, size_t pitch,
                  const void* next) {
  constexpr int kTogether = T == 1 ? Way::kStrips : 1;
  const uint8_t* p = static_cast<const uint8_t*>(strips);
  const size_t far = Quants::strip_bytes(cols);
  const ActBlock* a[T];
  for (int t = 0; t < T; ++t) a[t] = static_cast<const ActBlock*>(x[t]);
  const uint8_t* end = p + static_cast<size_t>((rows + kStripRows - 1) / kStripRows) * far;
  const Following following{end, next ? reinterpret_cast<intptr_t>(next) - reinterpret_cast<intptr_t>(end) : 0};
  int r = 0;
  for (; rows - r > (kTogether - 1) * kStripRows; r += kTogether * kStripRows, p += kTogether * far) {
    times_strips<Quants, Way, kTogether, T>(p, far, rows - r, cols, a, following, out + r, pitch);
  }
  if (r < rows) times_strips<Quants, Way, 1, T>(p, far, rows - r, cols, a, following, out + r, pitch);
}

template <class Quants, class Way>
void times_few(const void* strips, int rows, int cols, const void* const* x, int tokens, float* out, size_t pitch,
               const void* next) {
  switch (tokens) {
    case 1: return times_tokens<Quants, Way, 1>(strips, rows, cols, x, out, pitch, next);
    case 2: return times_tokens<Quants, Way, 2>(strips, rows, cols, x, out, pitch, next);
    case 3: return times_tokens<Quants, Way, 3>(strips, rows, cols, x, out, pitch, next);
    case 4: return times_tokens<Quants, Way, 4>(strips, rows, cols, x, out, pitch, next);
    case 5: return times_tokens<Quants, Way, 5>(strips, rows, cols, x, out, pitch, next);
    case 6: return times_tokens<Quants, Way, 6>(strips, rows, cols, x, out, pitch, next);
    case 7: return times_tokens<Quants, Way, 7>(strips, rows, cols, x, out, pitch, next);
    default: return times_tokens<Quants, Way, 8>(strips, rows, cols, x, out, pitch, next);
  }
}

}  // namespace

template <class Way>
void few_q4_k(const void* strips, int rows, int cols, const void* const* x, int tokens, float* out, size_t pitch,
              const void* next) {
  times_few<Q4, Way>(strips, rows, cols, x, tokens, out, pitch, next);
}

template <class Way>
void few_q6_k(const void* strips, int rows, int cols, const void* const* x, int tokens, float* out, size_t pitch,
              const void* next) {
  times_few<Q6, Way>(strips, rows, cols, x, tokens, out, pitch, next);
}

template void few_q4_k<OneStrip>(const void*, int, int, const void* const*, int, float*, size_t, const void*);
template void few_q4_k<TwoStrips>(const void*, int, int, const void* const*, int, float*, size_t, const void*);
template void few_q6_k<OneStrip>(const void*, int, int, const void* const*, int, float*, size_t, const void*);
template void few_q6_k<TwoStrips>(const void*, int, int, const void* const*, int, float*, size_t, const void*);

}  // namespace doppler::cpu::avx512
#endif
