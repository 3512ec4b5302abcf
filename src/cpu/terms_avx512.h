// How a row's product is summed, so that one token and many tokens give the same bits. Each group of weights makes one
// exact integer, then one term in f32; the terms are added one after the other in the order of the columns. With many
// tokens that is what lanes (of rows) do anyway; with one token the terms of sixteen rows are written down first and
// then added across the rows.
#pragma once

#include "cpu/tile_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

constexpr int kTermRows = 16;
constexpr int kMostTerms = 512;  // of a row at once; longer rows come in pieces

struct Terms {
  alignas(64) float t[kTermRows][kMostTerms + 16];  // the pitch keeps rows off each other's cache sets

  // sums += the first `count` terms of each row in turn, rows as lanes. Rows past `rows` are the last again.
  __m512 add_to(__m512 sums, int count, int rows) const {
    for (int g = 0; g < count; g += 16) {
      __m512i v[16];
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) v[r] = _mm512_load_si512(t[r < rows ? r : rows - 1] + g);
      transpose16(v);
      if (count - g >= 16) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) sums = _mm512_add_ps(sums, _mm512_castsi512_ps(v[i]));
      } else {
        alignas(64) float rest[16][16];
        for (int i = 0; i < 16; ++i) _mm512_store_si512(rest[i], v[i]);
        for (int i = 0; i < count - g; ++i) sums = _mm512_add_ps(sums, _mm512_load_ps(rest[i]));
      }
    }
    return sums;
  }
};

// Four products of 64 bytes with groups (0 2), (1 3), (4 6), (5 7) of 32 columns: the sums of groups 0 … 7.
inline __m256i sum_groups(__m512i p02, __m512i p13, __m512i p46, __m512i p57) {
  const __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(p02, p13), _mm512_unpackhi_epi32(p02, p13));
  const __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(p46, p57), _mm512_unpackhi_epi32(p46, p57));
  // Each 128 bits: parts of groups 0 1 4 5 in the lower half, of 2 3 6 7 in the upper.
  const __m512i c = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
  const __m512i d = _mm512_add_epi32(c, _mm512_shuffle_i32x4(c, c, 0xb1));
  const __m512i order = _mm512_setr_epi32(0, 1, 8, 9, 2, 3, 10, 11, 0, 0, 0, 0, 0, 0, 0, 0);
  return _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, d));
}

// out[r] for every row: Format::terms(row, first block, blocks, x, to) writes the terms of some blocks of 256 columns,
// Format::kTerms each; a row has `terms` of them in all.
template <class Format>
inline void dot_by_terms(const void* weights, size_t stride, int rows, const void* activations, int k, float* out) {
  constexpr int kPiece = kMostTerms / Format::kTerms;
  const int blocks = (k + kBlock - 1) / kBlock;
  const int all = (k + kGroup - 1) / kGroup * (Format::kTerms * kGroup / kBlock);
  const auto* x = static_cast<const typename Format::X*>(activations);
  Terms terms;
  for (int r0 = 0; r0 < rows; r0 += kTermRows) {
    const int n = rows - r0 < kTermRows ? rows - r0 : kTermRows;
    __m512 sums = _mm512_setzero_ps();
    for (int b = 0; b < blocks; b += kPiece) {
      const int some = blocks - b < kPiece ? blocks - b : kPiece;
      for (int r = 0; r < n; ++r) {
        const uint8_t* row = static_cast<const uint8_t*>(weights) + static_cast<size_t>(r0 + r) * stride;
        Format::terms(row, k, b, some, x + b, terms.t[r]);
      }
      const int left = all - b * Format::kTerms, most = some * Format::kTerms;
      sums = terms.add_to(sums, left < most ? left : most, n);
    }
    _mm512_mask_storeu_ps(out + r0, static_cast<__mmask16>((1u << n) - 1u), sums);
  }
}

}  // namespace
}  // namespace doppler::cpu::avx512
