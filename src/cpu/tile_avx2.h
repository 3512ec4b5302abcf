// How a tile of 32 weight rows lies for the many-token kernels with AVX2: in quarters of 8 rows, lanes are rows.
#pragma once

#include "cpu/simd_avx2.h"

namespace doppler::cpu::avx2 {
namespace {

constexpr int kTileDepth = 512;  // columns
constexpr int kQuarter = kTileRows / 4;

struct alignas(64) QuantTile {
  uint8_t q[kTileDepth / 4][4][32];                 // [four columns][quarter][row][column]
  float scale[kTileDepth / kGroup * 2][kTileRows];  // by groups of 32, or of 16
  float min[kTileDepth / kGroup * 2][kTileRows];
};
static_assert(sizeof(QuantTile) <= kTileBytes);

// 8 vectors of 8 dwords, transposed in place.
inline void transpose8(__m256i* v) {
  __m256i t[8];
  for (int i = 0; i < 8; i += 4) {
    const __m256i a = _mm256_unpacklo_epi32(v[i], v[i + 1]), b = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    const __m256i c = _mm256_unpacklo_epi32(v[i + 2], v[i + 3]), d = _mm256_unpackhi_epi32(v[i + 2], v[i + 3]);
    t[i] = _mm256_unpacklo_epi64(a, c);
    t[i + 1] = _mm256_unpackhi_epi64(a, c);
    t[i + 2] = _mm256_unpacklo_epi64(b, d);
    t[i + 3] = _mm256_unpackhi_epi64(b, d);
  }
  for (int j = 0; j < 4; ++j) {
    v[j] = _mm256_permute2x128_si256(t[j], t[4 + j], 0x20);
    v[4 + j] = _mm256_permute2x128_si256(t[j], t[4 + j], 0x31);
  }
}

}  // namespace
}  // namespace doppler::cpu::avx2
