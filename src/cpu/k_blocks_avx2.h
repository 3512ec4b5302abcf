// The inside of Q4_K, Q6_K, Q8_0 and MXFP4 blocks for AVX2; layouts as in k_blocks_avx512.h.
#pragma once

#include "cpu/simd_avx2.h"

namespace doppler::cpu::avx2 {
namespace {

constexpr size_t kQ4Bytes = 144, kQ6Bytes = 210, kQ8Bytes = 34;

inline __m256i load32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline float half_at(const uint8_t* p) {
  uint16_t h;
  __builtin_memcpy(&h, p, 2);
  return _cvtsh_ss(h);
}

// d·scale and dmin·minimum of the eight groups of a Q4_K block.
inline void q4_scales(const uint8_t* block, Vf& scales, Vf& mins) {
  uint32_t u[3];
  __builtin_memcpy(u, block + 4, 12);
  const uint32_t low6 = 0x3f3f3f3fu, low4 = 0x0f0f0f0fu, high2 = 0x30303030u;
  const uint64_t sc = (u[0] & low6) | static_cast<uint64_t>((u[2] & low4) | ((u[0] >> 2) & high2)) << 32;
  const uint64_t m = (u[1] & low6) | static_cast<uint64_t>(((u[2] >> 4) & low4) | ((u[1] >> 2) & high2)) << 32;
  const auto floats = [](uint64_t bytes) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(bytes))));
  };
  scales = mul(floats(sc), set1(half_at(block)));
  mins = mul(floats(m), set1(half_at(block + 2)));
}

// Groups 2c and 2c+1 of a Q4_K block.
inline void q4_groups(const uint8_t* block, int c, __m256i& even, __m256i& odd) {
  const __m256i nibble = _mm256_set1_epi8(15), both = load32(block + 16 + 32 * c);
  even = _mm256_and_si256(both, nibble);
  odd = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
}

// The four groups of 32 of half a Q6_K block, 0 … 63.
inline void q6_groups(const uint8_t* block, int half, __m256i* g) {
  const __m256i nibble = _mm256_set1_epi8(15), upper = _mm256_set1_epi8(0x30);
  const __m256i l0 = load32(block + 64 * half), l1 = load32(block + 64 * half + 32);
  const __m256i h = load32(block + 128 + 32 * half);
  const auto join = [&](__m256i low, __m256i high) {
    return _mm256_or_si256(_mm256_and_si256(low, nibble), _mm256_and_si256(high, upper));
  };
  g[0] = join(l0, _mm256_slli_epi16(h, 4));
  g[1] = join(l1, _mm256_slli_epi16(h, 2));
  g[2] = join(_mm256_srli_epi16(l0, 4), h);
  g[3] = join(_mm256_srli_epi16(l1, 4), _mm256_srli_epi16(h, 2));
}

// d·scale of the sixteen groups of 16 of a Q6_K block.
inline void q6_scales(const uint8_t* block, Vf& low, Vf& high) {
  const __m128i sc = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 192));
  const Vf d = set1(half_at(block + 208));
  low = mul(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(sc)), d);
  high = mul(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(sc, 8))), d);
}

// Formats of 32 weights with one scale.
struct Q8Unit {
  static constexpr size_t kBytes = kQ8Bytes;
  static __m256i quants(const uint8_t* w) { return load32(w + 2); }
  static float scale(const uint8_t* w) { return half_at(w); }
};

struct MxUnit {
  static constexpr size_t kBytes = 17;
  static __m256i quants(const uint8_t* w) {
    const __m128i levels = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(w + 1)), nibble = _mm_set1_epi8(15);
    const __m128i low = _mm_and_si128(codes, nibble), high = _mm_and_si128(_mm_srli_epi16(codes, 4), nibble);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(levels), _mm256_set_m128i(high, low));
  }
  static float scale(const uint8_t* w) {
    const uint32_t bits = w[0] < 2 ? 0x00200000u << w[0] : (w[0] - 1u) << 23;
    float d;
    __builtin_memcpy(&d, &bits, 4);
    return d;
  }
};

}  // namespace
}  // namespace doppler::cpu::avx2
