// How Q4_K and Q6_K lie in strips of sixteen rows, made when a model is loaded. A vector of 64 bytes holds four columns
// of sixteen rows (lanes are rows, so that nothing is ever summed across lanes), and what a strip needs comes in the
// order it is read, without the padding of rows that end inside a block of 256 columns.
//
// Quants of Q4_K, a group of 32 columns: vector v of four has columns 8v … 8v+3 in the low nibbles and 8v+4 … 8v+7 in
// the high ones. Of Q6_K, 16 columns: vector v of three has columns 4v … 4v+3 in the lower six bits and two bits of
// columns 12 … 15 above them, those at 2v.
// Q4_K, a block of G ≤ 8 groups: d and dmin as f16 [16 rows] each, then
//   a byte [G][16 rows]: the low nibbles of scale and minimum, padded to 64 bytes;
//   half a byte [G][16 rows]: the upper two bits of each, 32 bytes for four groups with groups 2 and 3 in the high
//   nibbles, padded to 64 bytes;
//   the quants of the groups.
// Q6_K, two blocks: d [2][16 rows] as f16, then for each block an int8 scale [2G][16 rows], padded to 64 bytes, and the
// quants.
#pragma once

#include <immintrin.h>

#include "cpu/kernels.h"

namespace doppler::cpu::avx512 {
namespace {

constexpr int kVector = 64;
constexpr int kBlockGroups = kBlock / kGroup;
constexpr size_t kQ4GroupBytes = 4 * kVector, kQ6GroupBytes = 6 * kVector;

constexpr size_t whole_vectors(size_t bytes) { return (bytes + kVector - 1) / kVector * kVector; }
constexpr int groups_of(int cols) { return (cols + kGroup - 1) / kGroup; }
constexpr int groups_here(int groups, int block) {
  const int left = groups - block * kBlockGroups;
  return left < kBlockGroups ? left : kBlockGroups;
}

// Where the parts of a block of `groups` groups begin, from its first byte.
struct Q4Strip {
  size_t high, quants, end;
  static constexpr size_t kLow = 2 * 2 * kStripRows;
  explicit constexpr Q4Strip(int groups)
      : high(kLow + whole_vectors(static_cast<size_t>(groups) * kStripRows)),
        quants(high + whole_vectors(static_cast<size_t>(groups) * kStripRows / 2)),
        end(quants + static_cast<size_t>(groups) * kQ4GroupBytes) {}
  // Of a whole block at column k0, a multiple of 256, from the strip's first byte.
  static constexpr size_t at(int k0) { return static_cast<size_t>(k0 / kBlock) * Q4Strip(kBlockGroups).end; }
};

struct Q6Strip {
  size_t scales, quants, end;  // `scales` counts the d of two blocks in the first of them
  constexpr Q6Strip(int groups, int block)
      : scales(block % 2 ? 0 : 2 * 2 * kStripRows),
        quants(scales + whole_vectors(static_cast<size_t>(groups) * 2 * kStripRows)),
        end(quants + static_cast<size_t>(groups) * kQ6GroupBytes) {}
  // k0 a multiple of 512.
  static constexpr size_t at(int k0) {
    return static_cast<size_t>(k0 / (2 * kBlock)) * (Q6Strip(kBlockGroups, 0).end + Q6Strip(kBlockGroups, 1).end);
  }
};
static_assert(Q4Strip(kBlockGroups).end == 16 * 144 && Q6Strip::at(512) == 32 * 210, "no larger than the blocks");

inline __m256i load_half(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m512 row_numbers(const uint8_t* f16) { return _mm512_cvtph_ps(load_half(f16)); }

// Scale and minimum of four groups, a byte each: [group][row].
struct Q4Numbers {
  alignas(kVector) uint8_t scale[4 * kStripRows];
  alignas(kVector) uint8_t min[4 * kStripRows];

  void read(const uint8_t* low, const uint8_t* high) {
    const __m512i l = _mm512_loadu_si512(low), nibble = _mm512_set1_epi8(15), upper = _mm512_set1_epi8(0x30);
    const __m512i shift = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
    const __m512i h = _mm512_srlv_epi16(_mm512_broadcast_i64x4(load_half(high)), shift);
    const __m512i m = _mm512_and_si512(_mm512_srli_epi16(l, 4), nibble);
    // (a & b) | c
    _mm512_store_si512(scale,
                       _mm512_ternarylogic_epi32(_mm512_slli_epi16(h, 4), upper, _mm512_and_si512(l, nibble), 0xea));
    _mm512_store_si512(min, _mm512_ternarylogic_epi32(_mm512_slli_epi16(h, 2), upper, m, 0xea));
  }
  static __m512 floats(const uint8_t* bytes) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes))));
  }
};

// The scales of one group of sixteen columns.
inline __m512 q6_numbers(const uint8_t* scales) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(scales))));
}

// What gf2p8affineqb multiplies bytes with to move `count` bits from bit `from` on to bit `to` on; the others are
// cleared. A row of the 8 × 8 bits, topmost bit first, says which bits a bit of the result is the sum of.
constexpr uint64_t moving_bits(int from, int to, int count) {
  uint64_t matrix = 0;
  for (int i = 0; i < count; ++i) matrix |= uint64_t{1} << ((7 - to - i) * 8 + from + i);
  return matrix;
}
template <int From, int To, int Count>
inline __m512i moved(__m512i bytes) {
  return _mm512_gf2p8affine_epi64_epi8(bytes, _mm512_set1_epi64(moving_bits(From, To, Count)), 0);
}

// Columns 4·step … of a group as unsigned bytes. `step` is a constant where this is unrolled.
inline __m512i q4_columns(const uint8_t* quants, int step) {
  const __m512i both = _mm512_load_si512(quants + step / 2 * kVector);
  return step % 2 ? moved<4, 0, 4>(both) : _mm512_and_si512(both, _mm512_set1_epi8(15));
}
inline __m512i q6_columns(const uint8_t* quants, int step) {
  const uint8_t* half = quants + step / 4 * 3 * kVector;
  const int v = step % 4;
  if (v < 3) return _mm512_and_si512(_mm512_load_si512(half + v * kVector), _mm512_set1_epi8(63));
  const __m512i first = moved<6, 0, 2>(_mm512_load_si512(half));
  const __m512i second = moved<6, 2, 2>(_mm512_load_si512(half + kVector));
  const __m512i third = moved<6, 4, 2>(_mm512_load_si512(half + 2 * kVector));
  return _mm512_ternarylogic_epi32(first, second, third, 0xfe);  // a | b | c
}

// Walks a strip's first `groups` groups, from the first byte of a block on (for Q6_K of an even one), for who makes
// tiles of them: f(group, scale, min, quants).
template <class Function>
inline void each_q4_group(const uint8_t* p, int groups, Function&& f) {
  for (int b = 0; b * kBlockGroups < groups; ++b) {
    const int here = groups_here(groups, b);
    const Q4Strip at(here);
    const __m512 d = row_numbers(p), dmin = row_numbers(p + 2 * kStripRows);
    for (int g = 0; g < here; ++g) {
      const int set = g / 4 * 4 * kStripRows, in_set = g % 4 * kStripRows;
      Q4Numbers numbers;
      numbers.read(p + Q4Strip::kLow + set, p + at.high + set / 2);
      f(b * kBlockGroups + g, _mm512_mul_ps(d, Q4Numbers::floats(numbers.scale + in_set)),
        _mm512_mul_ps(dmin, Q4Numbers::floats(numbers.min + in_set)),
        p + at.quants + static_cast<size_t>(g) * kQ4GroupBytes);
    }
    p += at.end;
  }
}
// f(group, scale of its first sixteen columns, of the others, quants)
template <class Function>
inline void each_q6_group(const uint8_t* p, int groups, Function&& f) {
  const uint8_t* numbers = p;
  for (int b = 0; b * kBlockGroups < groups; ++b) {
    const int here = groups_here(groups, b);
    const Q6Strip at(here, b);
    if (b % 2 == 0) numbers = p;
    const __m512 d = row_numbers(numbers + b % 2 * 2 * kStripRows);
    for (int g = 0; g < here; ++g) {
      const uint8_t* scales = p + at.scales + g * 2 * kStripRows;
      f(b * kBlockGroups + g, _mm512_mul_ps(d, q6_numbers(scales)), _mm512_mul_ps(d, q6_numbers(scales + kStripRows)),
        p + at.quants + static_cast<size_t>(g) * kQ6GroupBytes);
    }
    p += at.end;
  }
}

// The strip of one half of a tile of `rows` rows; where there is only one strip, both halves hold it.
inline const uint8_t* strip_of(const void* strips, int rows, int half, size_t strip_bytes) {
  return static_cast<const uint8_t*>(strips) + (half == 1 && rows > kStripRows ? strip_bytes : 0);
}

}  // namespace
}  // namespace doppler::cpu::avx512
