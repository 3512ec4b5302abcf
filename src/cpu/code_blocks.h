// Weights that are small codes with a scale for 16 or 32 columns, as ggml stores them: w = scale · (code − kZero), or
// scale · code − min. Every type is told here once, as numbers; each instruction set has one set of kernels for all of
// them (code_rows_avx2.h, code_strips_avx512.h), for which code_vectors.h takes the codes out of a block.
//
// Types of 32 weights begin with d as f16, then perhaps a minimum (to be added), bits 4 of all codes, and 16 bytes of
// nibbles: byte i has weight i in its low nibble and 16 + i in the high one. Types of 256 weights, by byte:
//   Q5_K    d, dmin; 4: scales and minima as Q4_K's; 16: bits 4, bit g of byte i for column i of group g; 48: nibbles,
//           32 bytes for two groups
//   Q3_K    0: bits 2, as Q5_K's bits 4; 32: pairs of bits, 32 bytes for four groups; 96: 16 scales + 32 of six bits:
//   low
//           nibbles of scales 0 … 7 and 8 … 15, then their upper bits, of 4j + i in byte i; 108: d
//   Q2_K    0: 16 bytes of scale and minimum; 16: pairs of bits as Q3_K's; 80: d, dmin
//   IQ4_XS  d; 2: upper bits of eight scales + 32; 4: their low nibbles; 8: nibbles as in types of 32 weights
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels.h"

namespace doppler::cpu {
namespace {

// What the codes of IQ4_NL and IQ4_XS stand for.
constexpr int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// Scales and minima of a block as they are stored; a scale counts from kScaleZero.
struct CodeNumbers {
  uint8_t scale[16], min[16];
};

inline uint32_t word_at(const uint8_t* p) {
  uint32_t w;
  __builtin_memcpy(&w, p, 4);
  return w;
}
inline void put_words(uint8_t* to, uint32_t a, uint32_t b) {
  const uint32_t words[2] = {a, b};
  __builtin_memcpy(to, words, 8);
}

template <int Bits, bool Min, bool Levels = false>
struct CodesOf32 {
  static constexpr int kColumns = 32, kPart = 32;  // of a block; of a scale
  static constexpr int kBits = Bits, kZero = Min ? 0 : Levels ? 128 : 1 << (Bits - 1);
  static constexpr bool kMin = Min, kLevels = Levels;
  static constexpr size_t kD = 0, kDmin = 2;
  static constexpr size_t kHighBits = Min ? 4 : 2, kCodes = kHighBits + (Bits == 5 ? 4 : 0), kBytes = kCodes + 16;
};
using CodesQ4_0 = CodesOf32<4, false>;
using CodesQ4_1 = CodesOf32<4, true>;
using CodesQ5_0 = CodesOf32<5, false>;
using CodesQ5_1 = CodesOf32<5, true>;
using CodesIQ4_NL = CodesOf32<4, false, true>;

struct CodesQ5_K {
  static constexpr int kColumns = 256, kPart = 32, kBits = 5, kZero = 0, kScaleZero = 0;
  static constexpr bool kMin = true, kLevels = false;
  static constexpr size_t kBytes = 176, kD = 0, kDmin = 2;
  static CodeNumbers numbers(const uint8_t* block) {
    constexpr uint32_t kLow6 = 0x3f3f3f3f, kLow4 = 0x0f0f0f0f, kUpper = 0x30303030;
    const uint32_t s = word_at(block + 4), m = word_at(block + 8), both = word_at(block + 12);
    CodeNumbers n;
    put_words(n.scale, s & kLow6, (both & kLow4) | (s >> 2 & kUpper));
    put_words(n.min, m & kLow6, (both >> 4 & kLow4) | (m >> 2 & kUpper));
    return n;
  }
};

struct CodesQ3_K {
  static constexpr int kColumns = 256, kPart = 16, kBits = 3, kZero = 4, kScaleZero = 32;
  static constexpr bool kMin = false, kLevels = false;
  static constexpr size_t kBytes = 110, kD = 108, kDmin = 0;
  static CodeNumbers numbers(const uint8_t* block) {
    constexpr uint32_t kLow4 = 0x0f0f0f0f, kUpper = 0x30303030;
    const uint32_t a = word_at(block + 96), b = word_at(block + 100), high = word_at(block + 104);
    CodeNumbers n;
    put_words(n.scale, (a & kLow4) | (high << 4 & kUpper), (b & kLow4) | (high << 2 & kUpper));
    put_words(n.scale + 8, (a >> 4 & kLow4) | (high & kUpper), (b >> 4 & kLow4) | (high >> 2 & kUpper));
    return n;
  }
};

struct CodesQ2_K {
  static constexpr int kColumns = 256, kPart = 16, kBits = 2, kZero = 0, kScaleZero = 0;
  static constexpr bool kMin = true, kLevels = false;
  static constexpr size_t kBytes = 84, kD = 80, kDmin = 82;
  static CodeNumbers numbers(const uint8_t* block) {
    CodeNumbers n;
    for (int i = 0; i < 16; ++i) n.scale[i] = block[i] & 15;
    for (int i = 0; i < 16; ++i) n.min[i] = block[i] >> 4;
    return n;
  }
};

struct CodesIQ4_XS {
  static constexpr int kColumns = 256, kPart = 32, kBits = 4, kZero = 128, kScaleZero = 32;
  static constexpr bool kMin = false, kLevels = true;
  static constexpr size_t kBytes = 136, kD = 0, kDmin = 0;
  static CodeNumbers numbers(const uint8_t* block) {
    CodeNumbers n;
    const uint32_t high = word_at(block) >> 16;
    for (int g = 0; g < 8; ++g) {
      const uint32_t upper = high >> (2 * g) & 3;
      n.scale[g] = static_cast<uint8_t>((block[4 + g / 2] >> (g % 2 * 4) & 15) | upper << 4);
    }
    return n;
  }
};

template <FormatId F>
struct CodesOf;
template <>
struct CodesOf<kFormatQ4_0> {
  using Type = CodesQ4_0;
};
template <>
struct CodesOf<kFormatQ4_1> {
  using Type = CodesQ4_1;
};
template <>
struct CodesOf<kFormatQ5_0> {
  using Type = CodesQ5_0;
};
template <>
struct CodesOf<kFormatQ5_1> {
  using Type = CodesQ5_1;
};
template <>
struct CodesOf<kFormatQ2_K> {
  using Type = CodesQ2_K;
};
template <>
struct CodesOf<kFormatQ3_K> {
  using Type = CodesQ3_K;
};
template <>
struct CodesOf<kFormatQ5_K> {
  using Type = CodesQ5_K;
};
template <>
struct CodesOf<kFormatIQ4_NL> {
  using Type = CodesIQ4_NL;
};
template <>
struct CodesOf<kFormatIQ4_XS> {
  using Type = CodesIQ4_XS;
};
template <FormatId F>
using Codes = typename CodesOf<F>::Type;

// Of 256 columns.
template <class T>
constexpr size_t kCodeBytes = T::kBytes*(kBlock / T::kColumns);
template <class T>
constexpr int kCodeParts = kBlock / T::kPart;
// The least and the largest number that a code stands for, from kZero on.
template <class T>
constexpr int kLeastCode = T::kLevels ? T::kZero + kIq4Levels[0] : 0;
template <class T>
constexpr int kMostCode = T::kLevels ? T::kZero + kIq4Levels[15] : (1 << T::kBits) - 1;

}  // namespace
}  // namespace doppler::cpu
