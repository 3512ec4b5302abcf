// How weights that are small codes (code_blocks.h) lie in strips of sixteen rows: as Q4_K does (strips_avx512.h), but
// one way for all of them. A block of 256 columns is its numbers and then its groups of 32 columns; a group is planes
// of bits, in vectors of 64 bytes, [16 rows][4 columns]:
//   four bits (of types of 4 and 5): vector v of four has columns 8v … 8v+3 in the low nibbles, 8v+4 … 8v+7 in the high
//   two bits (of types of 2 and 3): vector v of two has columns 16v + 4i … in the pairs of bits 2i
//   one bit (of types of 3 and 5): bit i has columns 4i …
// The numbers are
//   types of 32 weights  d as f16 [8 groups][16 rows], then the minimum less its sign alike
//   Q5_K, Q3_K, IQ4_XS   d and dmin as f16 [16 rows] (IQ4_XS: d alone), then 16 numbers of six bits (IQ4_XS: eight)
//                        as in a strip of Q4_K: its scales are the first half of ours, its minima the second
//   Q2_K                 d and dmin, a byte [16 parts][16 rows] of scale and minimum
#pragma once

#include "cpu/code_blocks.h"
#include "cpu/strips_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

template <class T>
constexpr int kLowBits = T::kBits / 2 * 2;
template <class T>
constexpr size_t kLowBytes = static_cast<size_t>(kLowBits<T>) * kVector;
template <class T>
constexpr size_t kCodeGroupBytes = static_cast<size_t>(T::kBits) * kVector;

// Sixteen numbers of six bits of each row, or eight.
template <class T>
constexpr int kSixBits = T::kMin || T::kPart == 16 ? 16 : 8;
template <class T>
constexpr size_t kHalvesBytes = (T::kColumns < kBlock ? 8 : 1) * 2 * kStripRows*(T::kMin || kSixBits<T> == 16 ? 2 : 1);
template <class T>
constexpr bool kNibbleNumbers = T::kBits == 2;
template <class T>
constexpr size_t kNumberBytes = kHalvesBytes<T> + (T::kColumns < kBlock ? 0
                                                   : kNibbleNumbers<T>  ? 16 * kStripRows
                                                                        : static_cast<size_t>(kSixBits<T>) * 12);

template <class T>
constexpr size_t code_strip_bytes(int cols) {
  const int groups = groups_of(cols), blocks = (groups + kBlockGroups - 1) / kBlockGroups;
  return static_cast<size_t>(blocks) * kNumberBytes<T> + static_cast<size_t>(groups) * kCodeGroupBytes<T>;
}
// Of a whole block at column k0, from the strip's first byte.
template <class T>
constexpr size_t code_block_at(int k0) {
  return static_cast<size_t>(k0 / kBlock) * (kNumberBytes<T> + kBlockGroups * kCodeGroupBytes<T>);
}
static_assert(kNumberBytes<CodesQ5_K> + 8 * kCodeGroupBytes<CodesQ5_K> == 16 * CodesQ5_K::kBytes);
static_assert(kNumberBytes<CodesIQ4_XS> + 8 * kCodeGroupBytes<CodesIQ4_XS> == 16 * CodesIQ4_XS::kBytes);
static_assert(kNumberBytes<CodesQ2_K> + 8 * kCodeGroupBytes<CodesQ2_K> == 16 * CodesQ2_K::kBytes);
static_assert(kNumberBytes<CodesQ5_1> + 8 * kCodeGroupBytes<CodesQ5_1> == 16 * 8 * CodesQ5_1::kBytes);

// Scale and minimum of the parts of a block: w = scale · code − min, by row.
template <class T>
struct PartNumbers {
  const uint8_t* p;
  __m512 d, dmin;
  alignas(kVector) uint8_t six[16 * kStripRows];  // [number][row]

  void read(const uint8_t* block) {
    p = block;
    if constexpr (T::kColumns == kBlock) {
      d = row_numbers(p);
      if (T::kMin) dmin = row_numbers(p + 2 * kStripRows);
      if constexpr (!kNibbleNumbers<T>) {
        constexpr int kEach = kSixBits<T> / 2;  // of a strip of Q4_K
        const uint8_t* low = p + kHalvesBytes<T>;
        for (int set = 0; set < kEach; set += 4) {
          Q4Numbers numbers;
          numbers.read(low + set * kStripRows, low + kEach * kStripRows + set / 2 * kStripRows);
          _mm512_store_si512(six + set * kStripRows, _mm512_load_si512(numbers.scale));
          _mm512_store_si512(six + (kEach + set) * kStripRows, _mm512_load_si512(numbers.min));
        }
      }
    }
  }
  __m512 floats(int number, int zero_point) const {
    const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(six + number * kStripRows));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_cvtepu8_epi32(bytes), _mm512_set1_epi32(zero_point)));
  }
  void part(int i, __m512& scale, __m512& min) const {
    if constexpr (T::kColumns < kBlock) {
      scale = row_numbers(p + i * 2 * kStripRows);
      if (T::kMin) min = row_numbers(p + (kBlockGroups + i) * 2 * kStripRows);
    } else if constexpr (kNibbleNumbers<T>) {
      const uint8_t* at = p + kHalvesBytes<T> + i * kStripRows;
      const __m512i both = _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(at)));
      scale = _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_and_si512(both, _mm512_set1_epi32(15))));
      min = _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(_mm512_srli_epi32(both, 4)));
    } else {
      scale = _mm512_mul_ps(d, floats(i, T::kScaleZero));
      if (T::kMin) min = _mm512_mul_ps(dmin, floats(kBlockGroups + i, 0));
    }
    if (!T::kMin) min = _mm512_mul_ps(scale, _mm512_set1_ps(T::kZero));
  }
};

// What moved() multiplies with to bring `count` bits of a place to place `to`, for places from 0 on.
template <int Count, int To>
struct Moves {
  uint64_t matrix[8 / Count];
  constexpr Moves() : matrix{} {
    for (int i = 0; i < 8 / Count; ++i) matrix[i] = moving_bits(i * Count, To, Count);
  }
};

// Columns 4·step … of a group as unsigned bytes: codes, or their levels from kZero on. `step` is a constant where this
// is unrolled.
template <class T>
inline __m512i code_columns(const uint8_t* quants, int step) {
  constexpr int kLow = kLowBits<T>, kIn = 8 / kLow;  // steps in a vector
  static constexpr Moves<kLow, 0> kDown{};
  static constexpr Moves<1, kLow> kTop{};
  const __m512i all = _mm512_load_si512(quants + step / kIn * kVector);
  const __m512i mask = _mm512_set1_epi8((1 << kLow) - 1);
  const auto move = [](__m512i bytes, uint64_t matrix) {
    return _mm512_gf2p8affine_epi64_epi8(bytes, _mm512_set1_epi64(static_cast<long long>(matrix)), 0);
  };
  const bool first = step % kIn == 0;
  __m512i q = first ? all : move(all, kDown.matrix[step % kIn]);
  if constexpr (T::kBits > kLow) {
    const __m512i top = move(_mm512_load_si512(quants + kLowBytes<T>), kTop.matrix[step]);
    q = first ? _mm512_ternarylogic_epi32(q, mask, top, 0xea) : _mm512_or_si512(q, top);  // (a & b) | c
  } else if (first) {
    q = _mm512_and_si512(q, mask);
  }
  if constexpr (T::kLevels) {
    const __m128i levels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Levels));
    const __m128i from_zero = _mm_xor_si128(levels, _mm_set1_epi8(-128));
    q = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(from_zero), q);
  }
  return q;
}

// The same of column i and one row.
template <class T>
inline int code_at(const uint8_t* quants, int row, int i) {
  constexpr int kLow = kLowBits<T>, kIn = 8 / kLow;
  const int step = i / 4, at = row * 4 + i % 4;
  int q = quants[step / kIn * kVector + at] >> (step % kIn * kLow) & ((1 << kLow) - 1);
  if (T::kBits > kLow) q |= (quants[static_cast<int>(kLowBytes<T>) + at] >> step & 1) << kLow;
  return T::kLevels ? kIq4Levels[q] + T::kZero : q;
}

// Walks a strip's first `groups` groups, from the first byte of a block on: f(group, scales, minima, quants), with one
// or two scales.
template <class T, class Function>
inline void each_code_group(const uint8_t* p, int groups, Function&& f) {
  constexpr int kParts = kGroup / T::kPart;
  PartNumbers<T> numbers;
  for (int g = 0; g < groups; ++g) {
    if (g % kBlockGroups == 0) {
      numbers.read(p);
      p += kNumberBytes<T>;
    }
    __m512 scale[kParts], min[kParts];
    for (int i = 0; i < kParts; ++i) numbers.part(g % kBlockGroups * kParts + i, scale[i], min[i]);
    f(g, scale, min, p);
    p += kCodeGroupBytes<T>;
  }
}

}  // namespace
}  // namespace doppler::cpu::avx512
