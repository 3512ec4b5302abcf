// Quants of two strips into a tile of bytes: w = s · (byte − 128) with s such that the largest weight of a row's block
// of 256 columns is 127 or −127. Bytes are made from quants in 16 bits: byte = (a · q + b) / 256, where a and b are
// whole numbers of a row and group. Sums may pass 2^16 on the way; the result does not.
#pragma once

#include "cpu/strips_avx512.h"
#include "cpu/tile_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

constexpr int kTileGroups = kTileDepth / kGroup;
constexpr float kHalfByte = 256 * 128.5f;  // the zero point, and a half so that cutting off rounds

// 127 over the largest magnitude of a row; nothing where all are nothing.
inline __m512 inverse(__m512 most) {
  return _mm512_maskz_div_ps(_mm512_cmp_ps_mask(most, _mm512_set1_ps(1e-30f), _CMP_GT_OQ), _mm512_set1_ps(127), most);
}
// A row's scale. `d` carries on what is not finite.
inline __m512 row_scale(__m512 most, __m512 d) {
  return _mm512_fmadd_ps(most, _mm512_set1_ps(1.0f / 127), _mm512_mul_ps(d, _mm512_setzero_ps()));
}

// A whole number of each row, twice in 16 bits.
inline __m512i twice(__m512i v) { return _mm512_mask_blend_epi16(0xaaaaaaaa, v, _mm512_slli_epi32(v, 16)); }
inline __m512i whole(__m512 v) { return _mm512_cvtps_epi32(v); }

inline __m512i bytes(__m512i quants, __m512i a, __m512i b) {
  const __m512i low = _mm512_set1_epi16(255);
  const __m512i even = _mm512_add_epi16(_mm512_mullo_epi16(_mm512_and_si512(quants, low), a), b);
  const __m512i odd = _mm512_add_epi16(_mm512_mullo_epi16(_mm512_srli_epi16(quants, 8), a), b);
  return _mm512_ternarylogic_epi32(low, _mm512_srli_epi16(even, 8), odd, 0xca);  // low ? even / 256 : odd
}

inline float lane(__m512 v, int row) {
  alignas(kVector) float lanes[kStripRows];
  _mm512_store_ps(lanes, v);
  return lanes[row];
}

}  // namespace
}  // namespace doppler::cpu::avx512
