// A vector of 8 floats for the files compiled with AVX2. Everything is private to the file that includes it.
#pragma once

#include <immintrin.h>

#include "cpu/kernels.h"

namespace doppler::cpu::avx2 {
namespace {

constexpr int kLanes = 8;
using Vf = __m256;
using Vm = __m256i;

alignas(32) constexpr int32_t kLaneMask[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
inline __m256i low_lanes(int n) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kLaneMask + 8 - n)); }

inline Vf zero() { return _mm256_setzero_ps(); }
inline Vf set1(float x) { return _mm256_set1_ps(x); }
inline Vf load(const float* p) { return _mm256_loadu_ps(p); }
inline Vf load_n(const float* p, int n) { return _mm256_maskload_ps(p, low_lanes(n)); }  // 0 ≤ n ≤ 8, rest zero
inline void store(float* p, Vf a) { _mm256_storeu_ps(p, a); }
inline void store_n(float* p, Vf a, int n) { _mm256_maskstore_ps(p, low_lanes(n), a); }
inline Vf load_f16(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline Vf load_f16_n(const uint16_t* p, int n) {
  alignas(16) uint16_t part[8] = {};
  for (int i = 0; i < n; ++i) part[i] = p[i];
  return load_f16(part);
}
inline Vf load_i16(const int16_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline Vf load_i16_n(const int16_t* p, int n) {
  alignas(16) int16_t part[8] = {};
  for (int i = 0; i < n; ++i) part[i] = p[i];
  return load_i16(part);
}
inline void store_i16_n(int16_t* p, Vf a, int n) {  // rounds to nearest even; |a| ≤ 32767
  const __m256i whole = _mm256_cvtps_epi32(a);
  alignas(16) int16_t part[8];
  _mm_store_si128(reinterpret_cast<__m128i*>(part),
                  _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1)));
  for (int i = 0; i < n; ++i) p[i] = part[i];
}

inline Vf add(Vf a, Vf b) { return _mm256_add_ps(a, b); }
inline Vf sub(Vf a, Vf b) { return _mm256_sub_ps(a, b); }
inline Vf mul(Vf a, Vf b) { return _mm256_mul_ps(a, b); }
inline Vf div(Vf a, Vf b) { return _mm256_div_ps(a, b); }
inline Vf max(Vf a, Vf b) { return _mm256_max_ps(a, b); }
inline Vf min(Vf a, Vf b) { return _mm256_min_ps(a, b); }
inline Vf abs(Vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
inline Vf fma(Vf a, Vf b, Vf c) { return _mm256_fmadd_ps(a, b, c); }    // a·b + c
inline Vf fnma(Vf a, Vf b, Vf c) { return _mm256_fnmadd_ps(a, b, c); }  // c − a·b
inline Vf copy_sign(Vf magnitude, Vf sign) {
  const Vf bit = _mm256_set1_ps(-0.0f);
  return _mm256_or_ps(_mm256_andnot_ps(bit, magnitude), _mm256_and_ps(bit, sign));
}
inline float sum_lanes(Vf a) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
inline float max_lanes(Vf a) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
inline Vf round(Vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline Vf times_pow2(Vf a, Vf whole) {  // a · 2^whole for −126 ≤ whole ≤ 127
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127));
  return mul(a, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}

// Lanes whose position lies in [low, high].
inline Vm between(const int32_t* positions, int32_t low, int32_t high) {
  const __m256i p = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(positions));
  const __m256i below = _mm256_cmpgt_epi32(_mm256_set1_epi32(low), p);
  const __m256i above = _mm256_cmpgt_epi32(p, _mm256_set1_epi32(high));
  return _mm256_xor_si256(_mm256_or_si256(below, above), _mm256_set1_epi32(-1));
}
inline bool any(Vm m) { return !_mm256_testz_si256(m, m); }
inline Vf select(Vm m, Vf yes, Vf no) { return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(m)); }

// Splits 16 floats a0 b0 a1 b1 … into a and b.
inline void deinterleave(const float* p, Vf& a, Vf& b) {
  const Vf x = load(p), y = load(p + 8);
  const Vf low = _mm256_permute2f128_ps(x, y, 0x20), high = _mm256_permute2f128_ps(x, y, 0x31);
  a = _mm256_shuffle_ps(low, high, 0x88);
  b = _mm256_shuffle_ps(low, high, 0xdd);
}

inline int32_t sum_i32(__m256i a) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

// The largest magnitude of 32 floats; NaN if one is NaN (magnitudes order like their bits, NaN highest).
inline float max_abs32(const float* x) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i most = _mm256_setzero_si256();
  for (int i = 0; i < 32; i += 8) {
    most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(load(x + i)), magnitude));
  }
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1))));
}

// 32 whole numbers that fit in int8.
inline void store_bytes(const __m256i* v, int8_t* q) {
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), _mm256_permutevar8x32_epi32(packed, order));
}

// 32 floats to int8 with the given 1/scale; returns the sums of both halves.
inline void quantize32(const float* x, float inverse, int8_t* q, int32_t& sum0, int32_t& sum1) {
  const Vf scale = set1(inverse);
  __m256i v[4];
  for (int i = 0; i < 4; ++i) v[i] = _mm256_cvtps_epi32(mul(load(x + 8 * i), scale));
  sum0 = sum_i32(_mm256_add_epi32(v[0], v[1]));
  sum1 = sum_i32(_mm256_add_epi32(v[2], v[3]));
  store_bytes(v, q);
}

// 32 floats to 15 bits with the given 1/scale; returns the sum.
inline int32_t quantize32_wide(const float* x, float inverse, int8_t* high, int8_t* low) {
  __m256i h[4], l[4], sum = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    const __m256i q = _mm256_cvtps_epi32(mul(load(x + 8 * i), set1(inverse)));
    h[i] = _mm256_srai_epi32(_mm256_add_epi32(q, _mm256_set1_epi32(64)), 7);
    l[i] = _mm256_sub_epi32(q, _mm256_slli_epi32(h[i], 7));
    sum = _mm256_add_epi32(sum, q);
  }
  store_bytes(h, high);
  store_bytes(l, low);
  return sum_i32(sum);
}

}  // namespace
}  // namespace doppler::cpu::avx2
