// The inside of Q4_K, Q6_K, Q8_0 and MXFP4 blocks, shared by the kernels for one token and for many.
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
// Lanes 0–7 take element a, lanes 8–15 element b.
inline __m512i halves(int a, int b) { return join(_mm256_set1_epi32(a), _mm256_set1_epi32(b)); }

// Which bytes of Q4Headers::scales, and which elements of d, belong to block j.
struct alignas(64) Q4Picks {
  int32_t bytes[4][16], d[4][16];
  constexpr Q4Picks() : bytes(), d() {
    for (int j = 0; j < 4; ++j) {
      for (int i = 0; i < 16; ++i) {
        bytes[j][i] = 16 * j + i;
        d[j][i] = 2 * j + i / 8;
      }
    }
  }
};
constexpr Q4Picks kQ4Picks;

// The headers of four Q4_K blocks taken apart together: lane group j (128 bits) is block j's.
struct Q4Headers {
  __m512i scales;  // bytes: the eight 6-bit scales, then the eight 6-bit minima
  __m512 d;        // d, dmin of block 0, of block 1, …

  // Blocks lie `stride` bytes apart; where there are fewer than four, the last is read again.
  Q4Headers(const uint8_t* w, size_t stride, int count) {
    const auto at = [&](int j) {
      const uint8_t* p = w + static_cast<size_t>(j < count ? j : count - 1) * stride;
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    };
    __m512i h = _mm512_castsi128_si512(at(0));
    h = _mm512_inserti32x4(h, at(1), 1);
    h = _mm512_inserti32x4(h, at(2), 2);
    h = _mm512_inserti32x4(h, at(3), 3);
    const __m512i high_shift = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 2, 0, 2));
    const __m512i high_mask = _mm512_broadcast_i32x4(_mm_setr_epi32(0x3f3f3f3f, 0x30303030, 0x3f3f3f3f, 0x30303030));
    const __m512i low_shift = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0, 0, 4));
    const __m512i low_mask = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x0f0f0f0f, 0, 0x0f0f0f0f));
    const __m512i high = _mm512_and_si512(
        _mm512_srlv_epi32(_mm512_shuffle_epi32(h, static_cast<_MM_PERM_ENUM>(0xa5)), high_shift), high_mask);
    const __m512i low = _mm512_srlv_epi32(_mm512_shuffle_epi32(h, static_cast<_MM_PERM_ENUM>(0xff)), low_shift);
    scales = _mm512_ternarylogic_epi32(low, low_mask, high, 0xea);  // (low & mask) | high
    const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    d = _mm512_castps256_ps512(_mm256_cvtph_ps(_mm512_castsi512_si128(_mm512_permutexvar_epi32(first, h))));
  }

  // Block j: d·scale of the eight groups, then dmin·minimum of the eight.
  __m512 of(int j) const {
    const __m512i bytes =
        _mm512_maskz_permutexvar_epi8(0x1111111111111111u, _mm512_load_si512(kQ4Picks.bytes[j]), scales);
    return _mm512_mul_ps(_mm512_cvtepi32_ps(bytes), _mm512_permutexvar_ps(_mm512_load_si512(kQ4Picks.d[j]), d));
  }
};

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

// d·scale of the sixteen groups of 16 of a Q6_K block.
inline __m512 q6_scales(const uint8_t* block) {
  uint16_t d;
  __builtin_memcpy(&d, block + 208, 2);
  const __m512i sc = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 192)));
  return _mm512_mul_ps(_mm512_cvtepi32_ps(sc), _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<short>(d))));
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
