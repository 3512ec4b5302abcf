// A vector of 16 floats for the files compiled with AVX-512. Everything is private to the file that includes it.
#pragma once

#include <immintrin.h>

#include "cpu/kernels.h"

namespace doppler::cpu::avx512 {
namespace {

constexpr int kLanes = 16;
using Vf = __m512;
using Vm = __mmask16;

inline __mmask16 low_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1u); }

inline Vf zero() { return _mm512_setzero_ps(); }
inline Vf set1(float x) { return _mm512_set1_ps(x); }
inline Vf load(const float* p) { return _mm512_loadu_ps(p); }
inline Vf load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(low_lanes(n), p); }  // 0 ≤ n ≤ 16, rest zero
inline void store(float* p, Vf a) { _mm512_storeu_ps(p, a); }
inline void store_n(float* p, Vf a, int n) { _mm512_mask_storeu_ps(p, low_lanes(n), a); }
inline Vf load_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Vf load_f16_n(const uint16_t* p, int n) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(low_lanes(n), p)); }
inline Vf load_i16(const int16_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
}
inline Vf load_i16_n(const int16_t* p, int n) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(low_lanes(n), p)));
}
inline void store_i16_n(int16_t* p, Vf a, int n) {  // rounds to nearest even; |a| ≤ 32767
  _mm256_mask_storeu_epi16(p, low_lanes(n), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(a)));
}

inline Vf add(Vf a, Vf b) { return _mm512_add_ps(a, b); }
inline Vf sub(Vf a, Vf b) { return _mm512_sub_ps(a, b); }
inline Vf mul(Vf a, Vf b) { return _mm512_mul_ps(a, b); }
inline Vf div(Vf a, Vf b) { return _mm512_div_ps(a, b); }
inline Vf max(Vf a, Vf b) { return _mm512_max_ps(a, b); }
inline Vf min(Vf a, Vf b) { return _mm512_min_ps(a, b); }
inline Vf abs(Vf a) { return _mm512_abs_ps(a); }
inline Vf fma(Vf a, Vf b, Vf c) { return _mm512_fmadd_ps(a, b, c); }    // a·b + c
inline Vf fnma(Vf a, Vf b, Vf c) { return _mm512_fnmadd_ps(a, b, c); }  // c − a·b
inline Vf copy_sign(Vf magnitude, Vf sign) {
  const __m512i bit = _mm512_set1_epi32(static_cast<int>(0x80000000u));
  return _mm512_castsi512_ps(  // bit ? sign : magnitude
      _mm512_ternarylogic_epi32(bit, _mm512_castps_si512(sign), _mm512_castps_si512(magnitude), 0xca));
}
inline float sum_lanes(Vf a) { return _mm512_reduce_add_ps(a); }
inline float max_lanes(Vf a) { return _mm512_reduce_max_ps(a); }
inline Vf round(Vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline Vf times_pow2(Vf a, Vf whole) { return _mm512_scalef_ps(a, whole); }  // a · 2^whole

// Lanes whose position lies in [low, high].
inline Vm between(const int32_t* positions, int32_t low, int32_t high) {
  const __m512i p = _mm512_loadu_si512(positions);
  return _mm512_cmp_epi32_mask(p, _mm512_set1_epi32(low), _MM_CMPINT_NLT) &
         _mm512_cmp_epi32_mask(p, _mm512_set1_epi32(high), _MM_CMPINT_LE);
}
inline bool any(Vm m) { return m != 0; }
inline Vf select(Vm m, Vf yes, Vf no) { return _mm512_mask_blend_ps(m, no, yes); }

// Splits 32 floats a0 b0 a1 b1 … into a and b.
inline void deinterleave(const float* p, Vf& a, Vf& b) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const Vf x = load(p), y = load(p + 16);
  a = _mm512_permutex2var_ps(x, even, y);
  b = _mm512_permutex2var_ps(x, _mm512_add_epi32(even, _mm512_set1_epi32(1)), y);
}

// The largest magnitude of 32 floats; NaN if one is NaN (magnitudes order like their bits, NaN highest).
inline float max_abs32(const float* x) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const __m512i a = _mm512_and_epi32(_mm512_castps_si512(load(x)), magnitude);
  const __m512i b = _mm512_and_epi32(_mm512_castps_si512(load(x + 16)), magnitude);
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(_mm512_max_epi32(a, b)))));
}

// 32 floats to int8 with the given 1/scale; returns the sums of both halves.
inline void quantize32(const float* x, float inverse, int8_t* q, int32_t& sum0, int32_t& sum1) {
  const Vf scale = set1(inverse);
  const __m512i a = _mm512_cvtps_epi32(mul(load(x), scale)), b = _mm512_cvtps_epi32(mul(load(x + 16), scale));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(a));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), _mm512_cvtepi32_epi8(b));
  sum0 = _mm512_reduce_add_epi32(a);
  sum1 = _mm512_reduce_add_epi32(b);
}

// 32 floats to 15 bits with the given 1/scale; returns the sum.
inline int32_t quantize32_wide(const float* x, float inverse, int8_t* high, int8_t* low) {
  int32_t sum = 0;
  for (int i = 0; i < 32; i += 16) {
    const __m512i q = _mm512_cvtps_epi32(mul(load(x + i), set1(inverse)));
    const __m512i h = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(64)), 7);
    const __m512i l = _mm512_sub_epi32(q, _mm512_slli_epi32(h, 7));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(high + i), _mm512_cvtepi32_epi8(h));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(low + i), _mm512_cvtepi32_epi8(l));
    sum += _mm512_reduce_add_epi32(q);
  }
  return sum;
}

}  // namespace
}  // namespace doppler::cpu::avx512
