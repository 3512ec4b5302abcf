// How a row's product is summed, so that one token and many tokens give the same bits; see terms_avx512.h. Here eight
// rows' terms are added together.
#pragma once

#include "cpu/tile_avx2.h"

namespace doppler::cpu::avx2 {
namespace {

constexpr int kTermRows = 8;
constexpr int kMostTerms = 512;  // of a row at once; longer rows come in pieces

struct Terms {
  alignas(32) float t[kTermRows][kMostTerms + 8];

  // sums += the first `count` terms of each row in turn, rows as lanes. Rows past `rows` are the last again.
  Vf add_to(Vf sums, int count, int rows) const {
    for (int g = 0; g < count; g += 8) {
      __m256i v[8];
      for (int r = 0; r < 8; ++r) v[r] = _mm256_castps_si256(load(t[r < rows ? r : rows - 1] + g));
      transpose8(v);
      const int here = count - g < 8 ? count - g : 8;
      for (int i = 0; i < here; ++i) sums = add(sums, _mm256_castsi256_ps(v[i]));
    }
    return sums;
  }
};

// Eight vectors of int32: the sum of each half of each, as [lower halves of 0–3 | upper halves of 0–3] and 4–7 alike.
inline void sum_halves(const __m256i* v, __m256i& first, __m256i& second) {
  first = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
  second = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
}
// The whole sums of eight vectors.
inline __m256i sum_eight(const __m256i* v) {
  __m256i first, second;
  sum_halves(v, first, second);
  return _mm256_add_epi32(_mm256_permute2x128_si256(first, second, 0x20),
                          _mm256_permute2x128_si256(first, second, 0x31));
}

// out[r] for every row: Format::terms(row, k, first block, blocks, x, to) writes the terms of some blocks of 256
// columns, Format::kTerms each.
template <class Format>
inline void dot_by_terms(const void* weights, size_t stride, int rows, const void* activations, int k, float* out) {
  constexpr int kPiece = kMostTerms / Format::kTerms;
  const int blocks = (k + kBlock - 1) / kBlock;
  const int all = (k + kGroup - 1) / kGroup * (Format::kTerms * kGroup / kBlock);
  const auto* x = static_cast<const typename Format::X*>(activations);
  Terms terms;
  for (int r0 = 0; r0 < rows; r0 += kTermRows) {
    const int n = rows - r0 < kTermRows ? rows - r0 : kTermRows;
    Vf sums = zero();
    for (int b = 0; b < blocks; b += kPiece) {
      const int some = blocks - b < kPiece ? blocks - b : kPiece;
      for (int r = 0; r < n; ++r) {
        const uint8_t* row = static_cast<const uint8_t*>(weights) + static_cast<size_t>(r0 + r) * stride;
        Format::terms(row, k, b, some, x + b, terms.t[r]);
      }
      const int left = all - b * Format::kTerms, most = some * Format::kTerms;
      sums = terms.add_to(sums, left < most ? left : most, n);
    }
    store_n(out + r0, sums, n);
  }
}

}  // namespace
}  // namespace doppler::cpu::avx2
