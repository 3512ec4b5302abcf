#if defined(__x86_64__)
// Strips of small codes times one to eight tokens.
#include "cpu/code_strips_avx512.h"
#include "cpu/gemv_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

// As Q4 in gemv_avx512.cpp.
template <class T>
struct CodeStrips {
  static constexpr int kParts = kGroup / T::kPart, kSteps = T::kPart / 4;
  static size_t strip_bytes(int cols) { return code_strip_bytes<T>(cols); }

  template <class Prefetch, int S, int Tokens>
  [[gnu::always_inline]] static void strips(const uint8_t* p, size_t strip_stride, int groups, const ActBlock* const* x,
                                            const Following& following, __m512 (*sums)[Tokens]) {
    for (int b = 0; b * kBlockGroups < groups; ++b) {
      const int here = groups_here(groups, b);
      const uint8_t* ahead = following.of(p, Prefetch::kAhead);
      fetch<Prefetch, S>(p, ahead, strip_stride, static_cast<int>(kNumberBytes<T> / kVector));
      PartNumbers<T> numbers[S];
#pragma GCC unroll 2
      for (int i = 0; i < S; ++i) numbers[i].read(p + i * strip_stride);
      alignas(kVector) float ds[Tokens][kCodeParts<T>];  // what minima multiply
#pragma GCC unroll 8
      for (int t = 0; t < Tokens; ++t) {
        if constexpr (kParts == 1) {
          _mm256_store_ps(ds[t], _mm256_load_ps(x[t][b].ds));
        } else {
          const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
          const __m512 d = _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_load_ps(x[t][b].d)));
          const __m512 sum = _mm512_cvtepi32_ps(_mm512_loadu_si512(x[t][b].zero16));
          _mm512_store_ps(ds[t], _mm512_mul_ps(_mm512_mul_ps(sum, _mm512_set1_ps(-1.0f / 32)), d));
        }
      }
      const uint8_t* quants = p + kNumberBytes<T>;
      ahead += kNumberBytes<T>;
      for (int g = 0; g < here; ++g, quants += kCodeGroupBytes<T>, ahead += kCodeGroupBytes<T>) {
        fetch<Prefetch, S>(quants, ahead, strip_stride, T::kBits);
#pragma GCC unroll 2
        for (int part = 0; part < kParts; ++part) {
          const int8_t* q[Tokens];
          __m512i dot[S][Tokens];
#pragma GCC unroll 8
          for (int t = 0; t < Tokens; ++t) {
            q[t] = x[t][b].q + group_offset(g);
#pragma GCC unroll 2
            for (int i = 0; i < S; ++i) dot[i][t] = _mm512_setzero_si512();
          }
          products<S, Tokens, kSteps>([&](int i, int step) { return code_columns<T>(quants + i * strip_stride, step); },
                                      part * kSteps, q, dot);
#pragma GCC unroll 2
          for (int i = 0; i < S; ++i) {
            __m512 scale, min;
            numbers[i].part(g * kParts + part, scale, min);
#pragma GCC unroll 8
            for (int t = 0; t < Tokens; ++t) {
              const __m512 scaled = add_scaled(sums[i][t], dot[i][t], scale, x[t][b].d[g]);
              sums[i][t] = subtract_min(scaled, min, ds[t][g * kParts + part]);
            }
          }
        }
      }
      p = quants;
    }
  }
};

}  // namespace

template <FormatId F, class Prefetch>
void gemv_codes(const void* strips, int rows, int cols, const void* const* x, int tokens, float* out, size_t pitch,
                const void* next) {
  gemv<CodeStrips<Codes<F>>, Prefetch>(strips, rows, cols, x, tokens, out, pitch, next);
}

#define DOPPLER_CODES(format, prefetch)                                                                      \
  template void gemv_codes<format, prefetch>(const void*, int, int, const void* const*, int, float*, size_t, \
                                             const void*);
DOPPLER_CODES(kFormatQ4_0, PrefetchOneStrip)
DOPPLER_CODES(kFormatQ4_0, PrefetchTwoStrips)
DOPPLER_CODES(kFormatQ4_1, PrefetchOneStrip)
DOPPLER_CODES(kFormatQ4_1, PrefetchTwoStrips)
DOPPLER_CODES(kFormatQ5_0, PrefetchOneStrip)
DOPPLER_CODES(kFormatQ5_0, PrefetchTwoStrips)
DOPPLER_CODES(kFormatQ5_1, PrefetchOneStrip)
DOPPLER_CODES(kFormatQ5_1, PrefetchTwoStrips)
DOPPLER_CODES(kFormatQ2_K, PrefetchOneStrip)
DOPPLER_CODES(kFormatQ2_K, PrefetchTwoStrips)
DOPPLER_CODES(kFormatQ3_K, PrefetchOneStrip)
DOPPLER_CODES(kFormatQ3_K, PrefetchTwoStrips)
DOPPLER_CODES(kFormatQ5_K, PrefetchOneStrip)
DOPPLER_CODES(kFormatQ5_K, PrefetchTwoStrips)
DOPPLER_CODES(kFormatIQ4_NL, PrefetchOneStrip)
DOPPLER_CODES(kFormatIQ4_NL, PrefetchTwoStrips)
DOPPLER_CODES(kFormatIQ4_XS, PrefetchOneStrip)
DOPPLER_CODES(kFormatIQ4_XS, PrefetchTwoStrips)
#undef DOPPLER_CODES

}  // namespace doppler::cpu::avx512
#endif
