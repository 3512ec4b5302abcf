// How a row's product is summed, so that one token and many tokens give the same bits; see block_sums_avx512.h.
#pragma once

#include "cpu/k_blocks_avx2.h"
#include "cpu/tile_avx2.h"

namespace doppler::cpu::avx2 {
namespace {

constexpr int kSumRows = 8;
constexpr int kMostBlocks = 4096;  // of eight rows together; of longer rows fewer are taken at once

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

// sum += numbers 0 … count-1 of eight rows in turn, rows as lanes; row i begins at rows(i).
template <class Rows>
inline Vf add_in_order(Vf sum, int count, Rows&& rows) {
  __m256i v[8];
  for (int i = 0; i < 8; ++i) v[i] = _mm256_castps_si256(load(rows(i)));
  transpose8(v);
  for (int i = 0; i < count; ++i) sum = add(sum, _mm256_castsi256_ps(v[i]));
  return sum;
}

// out[r] = row r · x. Format::terms(block, x, columns left, to) writes the kTerms terms of a block.
template <class Format>
inline void dot_by_blocks(const void* weights, size_t stride, int rows, const void* activations, int k, float* out) {
  constexpr int kTerms = Format::kTerms;
  const auto* x = static_cast<const typename Format::X*>(activations);
  const uint8_t* w = static_cast<const uint8_t*>(weights);
  const int blocks = (k + kBlock - 1) / kBlock;
  const int most = kMostBlocks / blocks > kSumRows ? kSumRows : kMostBlocks / blocks > 0 ? kMostBlocks / blocks : 1;
  alignas(32) float sums[kMostBlocks + 16];
  alignas(32) float terms[8][kTerms];
  for (int r0 = 0; r0 < rows; r0 += most) {
    const int n = rows - r0 < most ? rows - r0 : most;
    const auto flush = [&](int first) {
      Vf sum = zero();
      for (int t = 0; t < kTerms; t += 8) sum = add_in_order(sum, 8, [&](int i) { return terms[i] + t; });
      store(sums + first, sum);
    };
    int i = 0;
    for (int r = 0; r < n; ++r, w += stride) {
      for (int b = 0; b < blocks; ++b, ++i) {
        Format::terms(w + static_cast<size_t>(b) * Format::kBytes, x + b, k - b * kBlock, terms[i % 8]);
        if (i % 8 == 7) flush(i - 7);
      }
    }
    if (i % 8 != 0) flush(i / 8 * 8);
    Vf total = zero();
    for (int b = 0; b < blocks; b += 8) {
      total = add_in_order(total, blocks - b < 8 ? blocks - b : 8,
                           [&](int row) { return sums + (row < n ? row : n - 1) * blocks + b; });
    }
    store_n(out + r0, total, n);
  }
}

}  // namespace
}  // namespace doppler::cpu::avx2
