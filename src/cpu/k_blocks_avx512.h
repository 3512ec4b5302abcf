// The inside of Q4_K, Q6_K, Q8_0 and MXFP4 blocks.
//
// Q4_K, 144 bytes: d f16, dmin f16, 12 bytes of 6-bit scales and minima, 128 bytes of nibbles; weight = d·sc·q −
// dmin·m. Q6_K, 210 bytes: 128 bytes of low nibbles, 64 of upper bit pairs, 16 int8 scales, d f16; weight = d·sc·(q −
// 32). Q8_0, 34 bytes: d f16, 32 int8. MXFP4, 17 bytes: the exponent e, 32 codes of twice a level; weight = 2^(e −
// 128) · level; byte i has weight i in its low nibble and 16 + i in the high one.
#pragma once

#include <immintrin.h>

#include "cpu/kernels.h"

namespace doppler::cpu::avx512 {
namespace {

constexpr size_t kQ4Bytes = 144, kQ6Bytes = 210, kQ8Bytes = 34;

inline __m256i load32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m512i join(__m256i low, __m256i high) { return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1); }

// The eight 6-bit scales, then the eight 6-bit minima of a Q4_K block, a byte each.
inline __m128i q4_numbers(const uint8_t* block) {
  const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block));
  const __m128i high_mask = _mm_setr_epi32(0x3f3f3f3f, 0x30303030, 0x3f3f3f3f, 0x30303030);
  const __m128i low_mask = _mm_setr_epi32(0, 0x0f0f0f0f, 0, 0x0f0f0f0f);
  const __m128i high = _mm_and_si128(_mm_srlv_epi32(_mm_shuffle_epi32(h, 0xa5), _mm_setr_epi32(0, 2, 0, 2)), high_mask);
  const __m128i low = _mm_srlv_epi32(_mm_shuffle_epi32(h, 0xff), _mm_setr_epi32(0, 0, 0, 4));
  return _mm_ternarylogic_epi32(low, low_mask, high, 0xea);  // (low & mask) | high
}

// For each byte of 32 bytes of qh, seen twice: the 8 bits that start 4 below bit s, so that the pair at s lands on
// bits 4 and 5. s is s0 in the lower half, s1 in the upper.
constexpr int64_t qh_control(int s) {
  uint64_t control = 0;
  for (int byte = 0; byte < 8; ++byte) control |= static_cast<uint64_t>((8 * byte + s - 4) & 63) << (8 * byte);
  return static_cast<int64_t>(control);
}
inline __m512i qh_controls(int64_t low, int64_t high) {
  return join(_mm256_set1_epi64x(low), _mm256_set1_epi64x(high));
}

// Formats of 32 weights with one scale: whole numbers from 0 on, an offset that was added to them, and the scale.
struct Q8Unit {
  static constexpr size_t kBytes = kQ8Bytes;
  static constexpr int kOffset = 128;
  static __m256i quants(const uint8_t* w) { return _mm256_xor_si256(load32(w + 2), _mm256_set1_epi8(-128)); }
  // Of `count` units up to 16, zero behind them.
  static __m512 scales(const uint8_t* w, int count) {
    alignas(32) uint16_t d[16] = {};
    for (int u = 0; u < count; ++u) __builtin_memcpy(d + u, w + static_cast<size_t>(u) * kBytes, 2);
    return _mm512_cvtph_ps(load32(d));
  }
};

struct MxUnit {
  static constexpr size_t kBytes = 17;
  static constexpr int kOffset = 12;
  static __m256i quants(const uint8_t* w) {
    const __m128i levels = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(w + 1)), nibble = _mm_set1_epi8(15);
    const __m128i low = _mm_and_si128(codes, nibble), high = _mm_and_si128(_mm_srli_epi16(codes, 4), nibble);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(levels), _mm256_set_m128i(high, low));
  }
  static __m512 scales(const uint8_t* w, int count) {
    alignas(64) uint32_t bits[16] = {};
    for (int u = 0; u < count; ++u) {
      const uint32_t e = w[static_cast<size_t>(u) * kBytes];
      bits[u] = e < 2 ? 0x00200000u << e : (e - 1) << 23;
    }
    return _mm512_load_ps(bits);
  }
};

}  // namespace
}  // namespace doppler::cpu::avx512
