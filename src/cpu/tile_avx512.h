// How a tile of 32 weight rows lies for the many-token kernels: lanes are rows, so that one activation, broadcast,
// meets 16 rows at once.
#pragma once

#include <immintrin.h>

#include "cpu/kernels.h"

namespace doppler::cpu::avx512 {
namespace {

constexpr int kTileDepth = 512;  // columns: with its scales a tile leaves room in a 32 KiB L1
constexpr int kHalfRows = kTileRows / 2;

struct alignas(64) QuantTile {
  uint8_t q[kTileDepth / 4][2][64];  // [four columns][half][row][column]
  float scale[kTileDepth / kGroup][kTileRows];
  float min[kTileDepth / kGroup][kTileRows];
};

// The same with one scale for a row's block: w = scale · (q − 128).
struct alignas(64) ByteTile {
  uint8_t q[kTileDepth / 4][2][64];
  float scale[kTileDepth / kBlock][kTileRows];
};
static_assert(sizeof(QuantTile) <= kTileBytes && sizeof(ByteTile) <= kTileBytes);

// Four activations in every lane.
inline __m512i four(const int8_t* q) {
  int32_t v;
  __builtin_memcpy(&v, q, 4);
  return _mm512_set1_epi32(v);
}

// 16 vectors of 16 dwords, transposed in place.
inline void transpose16(__m512i* v) {
  __m512i t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    const __m512i a = _mm512_unpacklo_epi32(v[i], v[i + 1]), b = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    const __m512i c = _mm512_unpacklo_epi32(v[i + 2], v[i + 3]), d = _mm512_unpackhi_epi32(v[i + 2], v[i + 3]);
    t[i] = _mm512_unpacklo_epi64(a, c);
    t[i + 1] = _mm512_unpackhi_epi64(a, c);
    t[i + 2] = _mm512_unpacklo_epi64(b, d);
    t[i + 3] = _mm512_unpackhi_epi64(b, d);
  }
  // t[4i + j], 128-bit lane l: column 4l + j of rows 4i … 4i+3.
#pragma GCC unroll 16
  for (int j = 0; j < 4; ++j) {
    const __m512i a = _mm512_shuffle_i32x4(t[j], t[4 + j], 0x88), b = _mm512_shuffle_i32x4(t[j], t[4 + j], 0xdd);
    const __m512i c = _mm512_shuffle_i32x4(t[8 + j], t[12 + j], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(t[8 + j], t[12 + j], 0xdd);
    v[j] = _mm512_shuffle_i32x4(a, c, 0x88);
    v[8 + j] = _mm512_shuffle_i32x4(a, c, 0xdd);
    v[4 + j] = _mm512_shuffle_i32x4(b, d, 0x88);
    v[12 + j] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}

}  // namespace
}  // namespace doppler::cpu::avx512
