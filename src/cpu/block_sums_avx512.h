// How a row's product is summed, so that one token and many tokens give the same bits. Each group of weights makes one
// exact integer, then one term in f32; the terms of a block of 256 columns are added in order, and so are the blocks.
// With many tokens that is what lanes (of rows) do anyway. With one token eight blocks are taken as they lie in memory,
// across rows: their terms are turned round and added side by side, and later sixteen rows of block sums likewise.
#pragma once

#include "cpu/k_blocks_avx512.h"
#include "cpu/tile_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

constexpr int kSumRows = 16;
constexpr int kMostBlocks = 8192;  // of sixteen rows together; of longer rows fewer are taken at once

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

// The terms 0 … 7 of eight blocks added in turn, blocks as lanes.
inline __m256 add_eight_terms(const float (*terms)[8]) {
  __m256 t[8];
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    const auto row = [&](int j) { return _mm256_load_ps(terms[i + j]); };
    const __m256 a = _mm256_unpacklo_ps(row(0), row(1)), b = _mm256_unpackhi_ps(row(0), row(1));
    const __m256 c = _mm256_unpacklo_ps(row(2), row(3)), d = _mm256_unpackhi_ps(row(2), row(3));
    t[i] = _mm256_shuffle_ps(a, c, 0x44);
    t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
    t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
    t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
  __m256 sum = _mm256_setzero_ps();
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) sum = _mm256_add_ps(sum, _mm256_permute2f128_ps(t[i], t[4 + i], 0x20));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) sum = _mm256_add_ps(sum, _mm256_permute2f128_ps(t[i], t[4 + i], 0x31));
  return sum;
}

// The blocks of `rows` ≤ 16 rows added in order, rows as lanes; sums [rows][blocks], readable for 16 more.
inline __m512 add_blocks(const float* sums, int blocks, int rows) {
  __m512 total = _mm512_setzero_ps();
  for (int b = 0; b < blocks; b += 16) {
    __m512i v[16];
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) v[r] = _mm512_loadu_si512(sums + (r < rows ? r : rows - 1) * blocks + b);
    transpose16(v);
    alignas(64) float columns[16][16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_store_si512(columns[i], v[i]);
    const int here = blocks - b < 16 ? blocks - b : 16;
    for (int i = 0; i < here; ++i) total = _mm512_add_ps(total, _mm512_load_ps(columns[i]));
  }
  return total;
}

// out[r] = row r · x. Format::terms(block, x, columns, to) writes the eight terms of a block.
template <class Format>
inline void dot_by_blocks(const void* weights, size_t stride, int rows, const void* activations, int k, float* out) {
  const auto* x = static_cast<const typename Format::X*>(activations);
  const uint8_t* w = static_cast<const uint8_t*>(weights);
  const int blocks = (k + kBlock - 1) / kBlock;
  const int most = kMostBlocks / blocks > kSumRows ? kSumRows : kMostBlocks / blocks > 0 ? kMostBlocks / blocks : 1;
  alignas(64) float sums[kMostBlocks + 32];
  alignas(64) float terms[8][8];
  for (int r0 = 0; r0 < rows; r0 += most) {
    const int n = rows - r0 < most ? rows - r0 : most;
    const auto flush = [&](int first) { _mm256_storeu_ps(sums + first, add_eight_terms(terms)); };
    int i = 0;
    for (int r = 0; r < n; ++r, w += stride) {
      for (int b = 0; b < blocks; ++b, ++i) {
        Format::terms(w + static_cast<size_t>(b) * Format::kBytes, x + b, k - b * kBlock, terms[i % 8]);
        if (i % 8 == 7) flush(i - 7);
      }
    }
    if (i % 8 != 0) flush(i / 8 * 8);
    const __m512 total = add_blocks(sums, blocks, n);
    _mm512_mask_storeu_ps(out + r0, static_cast<__mmask16>((1u << n) - 1u), total);
  }
}

}  // namespace
}  // namespace doppler::cpu::avx512
