// The codes of one group of 32 columns as bytes, for the files compiled with AVX2 or more: group g of a block, which
// for types of 32 weights is the whole of it.
#pragma once

#include <immintrin.h>

#include "cpu/code_blocks.h"

namespace doppler::cpu {
namespace {

inline __m256i load_group(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline __m256i low_bits(__m256i v, int bits) {
  return _mm256_and_si256(v, _mm256_set1_epi8(static_cast<char>((1 << bits) - 1)));
}
// 16 bytes: low nibbles, then high ones.
inline __m256i nibbles(const uint8_t* p) {
  const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return low_bits(_mm256_set_m128i(_mm_srli_epi16(both, 4), both), 4);
}
// Bit i of 32 as `value` in byte i.
inline __m256i spread_bits(uint32_t bits, char value) {
  const __m256i order = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i own = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201u));
  const __m256i here = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)), order), own);
  return _mm256_and_si256(_mm256_cmpeq_epi8(here, own), _mm256_set1_epi8(value));
}
// Bit g of each byte at bit `to`.
inline __m256i one_bit(const uint8_t* p, int g, int to) {
  return _mm256_slli_epi16(low_bits(_mm256_srli_epi16(load_group(p), g), 1), to);
}
inline __m256i pairs_of_bits(const uint8_t* p, int g) {
  return low_bits(_mm256_srli_epi16(load_group(p + g / 4 * 32), g % 4 * 2), 2);
}

template <int Bits, bool Min, bool Levels>
inline __m256i codes(CodesOf32<Bits, Min, Levels>, const uint8_t* block, int /*g*/) {
  using T = CodesOf32<Bits, Min, Levels>;
  const __m256i low = nibbles(block + T::kCodes);
  return Bits == 5 ? _mm256_or_si256(low, spread_bits(word_at(block + T::kHighBits), 16)) : low;
}
inline __m256i codes(CodesQ5_K, const uint8_t* block, int g) {
  const __m256i low = low_bits(_mm256_srli_epi16(load_group(block + 48 + g / 2 * 32), g % 2 * 4), 4);
  return _mm256_or_si256(low, one_bit(block + 16, g, 4));
}
inline __m256i codes(CodesQ3_K, const uint8_t* block, int g) {
  return _mm256_or_si256(pairs_of_bits(block + 32, g), one_bit(block, g, 2));
}
inline __m256i codes(CodesQ2_K, const uint8_t* block, int g) { return pairs_of_bits(block + 16, g); }
inline __m256i codes(CodesIQ4_XS, const uint8_t* block, int g) { return nibbles(block + 8 + 16 * g); }

// Group g of a row.
template <class T>
inline __m256i row_codes(const uint8_t* row, int g) {
  constexpr int kGroups = T::kColumns / kGroup;
  return codes(T{}, row + static_cast<size_t>(g / kGroups) * T::kBytes, g % kGroups);
}

}  // namespace
}  // namespace doppler::cpu
