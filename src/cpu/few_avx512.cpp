#if defined(__x86_64__)
// Strips of Q4_K and Q6_K times one to eight tokens: the loops that decode spends its time in. Weights are read once,
// in the order they lie; each vector of them meets all tokens while it is in a register.
#include "cpu/formats_avx512.h"
#include "cpu/strips_avx512.h"
#include "cpu/tile_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

// Bytes by which a prefetch precedes its load.
constexpr int kAhead = 8192;

inline void fetch(const uint8_t* p, int vectors) {
#pragma GCC unroll 6
  for (int i = 0; i < vectors; ++i) _mm_prefetch(reinterpret_cast<const char*>(p + kAhead + i * kVector), _MM_HINT_T0);
}

// dot[t] += `Steps` times four columns, from step `first` of a group on. With one token alternate steps have sums of
// their own: a single chain of additions would take longer than the rest.
template <int T, int Steps, class Columns>
inline void products(Columns&& columns, int first, const int8_t* const* x, __m512i* dot) {
  __m512i other = _mm512_setzero_si512();
#pragma GCC unroll 8
  for (int s = first; s < first + Steps; ++s) {
    const __m512i w = columns(s);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      __m512i& sum = T == 1 && s % 2 ? other : dot[t];
      sum = _mm512_dpbusd_epi32(sum, w, four(x[t] + 4 * s));
    }
  }
  if (T == 1) dot[0] = _mm512_add_epi32(dot[0], other);
}

// One group's terms: sum + d_x · (scale · Σ q·x) − min · (d_x · Σ x).
inline __m512 add_scaled(__m512 sum, __m512i dot, __m512 scale, float d) {
  return _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(dot), scale), _mm512_set1_ps(d), sum);
}
inline __m512 take_min(__m512 sum, __m512 min, float ds) { return _mm512_fnmadd_ps(min, _mm512_set1_ps(ds), sum); }

// Both functions add one strip's rows times T tokens to sums[T] and return the next strip.
template <int T>
const uint8_t* q4_strip(const uint8_t* p, int groups, const ActBlock* const* x, __m512* sums) {
  for (int b = 0; b * kBlockGroups < groups; ++b) {
    const int here = groups_here(groups, b);
    const Q4Strip at(here);
    const __m512 d = row_numbers(p), dmin = row_numbers(p + 2 * kStripRows);
    fetch(p, 4);
    const uint8_t* quants = p + at.quants;
    for (int four_groups = 0; four_groups < here; four_groups += 4) {
      const Q4Numbers numbers(p + Q4Strip::kLow + four_groups * kStripRows, p + at.high + four_groups * kStripRows / 2);
      for (int g = four_groups; g < here && g < four_groups + 4; ++g, quants += kQ4GroupBytes) {
        const int8_t* q[T];
        __m512i dot[T];
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          q[t] = x[t][b].q + group_offset(g);
          dot[t] = _mm512_setzero_si512();
        }
        fetch(quants, 4);
        products<T, 8>([&](int s) { return q4_columns(quants, s); }, 0, q, dot);
        const __m512 scale = _mm512_mul_ps(d, Q4Numbers::floats(numbers.scale + (g & 3) * kStripRows));
        const __m512 min = _mm512_mul_ps(dmin, Q4Numbers::floats(numbers.min + (g & 3) * kStripRows));
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          sums[t] = take_min(add_scaled(sums[t], dot[t], scale, x[t][b].d[g]), min, x[t][b].ds[g]);
        }
      }
    }
    p += at.end;
  }
  return p;
}

template <int T>
const uint8_t* q6_strip(const uint8_t* p, int groups, const ActBlock* const* x, __m512* sums) {
  const uint8_t* numbers = p;
  for (int b = 0; b * kBlockGroups < groups; ++b) {
    const int here = groups_here(groups, b);
    const Q6Strip at(here, b);
    if (b % 2 == 0) numbers = p;
    const __m512 d = row_numbers(numbers + b % 2 * 2 * kStripRows);
    fetch(p, 4);
    const uint8_t* scales = p + at.scales;
    const uint8_t* quants = p + at.quants;
    for (int g = 0; g < here; ++g, quants += kQ6GroupBytes) {
      fetch(quants, 6);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half, scales += kStripRows) {
        const int8_t* q[T];
        __m512i dot[T];
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          q[t] = x[t][b].q + group_offset(g);
          dot[t] = _mm512_set1_epi32(x[t][b].zero16[2 * g + half]);
        }
        products<T, 4>([&](int s) { return q6_columns(quants, s); }, 4 * half, q, dot);
        const __m512 scale = _mm512_mul_ps(d, q6_numbers(scales));
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) sums[t] = add_scaled(sums[t], dot[t], scale, x[t][b].d[g]);
      }
    }
    p += at.end;
  }
  return p;
}

struct Q4 {
  template <int T>
  static const uint8_t* strip(const uint8_t* p, int groups, const ActBlock* const* x, __m512* sums) {
    return q4_strip<T>(p, groups, x, sums);
  }
};
struct Q6 {
  template <int T>
  static const uint8_t* strip(const uint8_t* p, int groups, const ActBlock* const* x, __m512* sums) {
    return q6_strip<T>(p, groups, x, sums);
  }
};

template <class Strips, int T>
void times_tokens(const void* strips, int rows, int cols, const void* const* x, float* out, size_t pitch) {
  const uint8_t* p = static_cast<const uint8_t*>(strips);
  const ActBlock* a[T];
  for (int t = 0; t < T; ++t) a[t] = static_cast<const ActBlock*>(x[t]);
  for (int r = 0; r < rows; r += kStripRows) {
    __m512 sums[T];
    for (int t = 0; t < T; ++t) sums[t] = _mm512_setzero_ps();
    p = Strips::template strip<T>(p, groups_of(cols), a, sums);
    const int n = rows - r < kStripRows ? rows - r : kStripRows;
    const __mmask16 here = static_cast<__mmask16>((1u << n) - 1u);
    for (int t = 0; t < T; ++t) _mm512_mask_storeu_ps(out + static_cast<size_t>(t) * pitch + r, here, sums[t]);
  }
}

template <class Strips>
void times_few(const void* strips, int rows, int cols, const void* const* x, int tokens, float* out, size_t pitch) {
  switch (tokens) {
    case 1: return times_tokens<Strips, 1>(strips, rows, cols, x, out, pitch);
    case 2: return times_tokens<Strips, 2>(strips, rows, cols, x, out, pitch);
    case 3: return times_tokens<Strips, 3>(strips, rows, cols, x, out, pitch);
    case 4: return times_tokens<Strips, 4>(strips, rows, cols, x, out, pitch);
    case 5: return times_tokens<Strips, 5>(strips, rows, cols, x, out, pitch);
    case 6: return times_tokens<Strips, 6>(strips, rows, cols, x, out, pitch);
    case 7: return times_tokens<Strips, 7>(strips, rows, cols, x, out, pitch);
    default: return times_tokens<Strips, 8>(strips, rows, cols, x, out, pitch);
  }
}

}  // namespace

void few_q4_k(const void* strips, int rows, int cols, const void* const* x, int tokens, float* out, size_t pitch) {
  times_few<Q4>(strips, rows, cols, x, tokens, out, pitch);
}

void few_q6_k(const void* strips, int rows, int cols, const void* const* x, int tokens, float* out, size_t pitch) {
  times_few<Q6>(strips, rows, cols, x, tokens, out, pitch);
}

}  // namespace doppler::cpu::avx512
#endif
