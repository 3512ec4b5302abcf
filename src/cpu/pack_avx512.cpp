#if defined(__x86_64__)
// Rows of Q4_K and Q6_K into strips; see strips_avx512.h for what lies where.
#include "cpu/formats_avx512.h"
#include "cpu/k_blocks_avx512.h"
#include "cpu/strips_avx512.h"
#include "cpu/tile_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

// In every 8 bytes of a vector, the upper four bytes as the high nibbles of the lower four: eight dwords.
inline __m256i fold(__m512i v) { return _mm512_cvtepi64_epi32(_mm512_or_si512(v, _mm512_srli_epi64(v, 32 - 4))); }

// Sixteen rows' vectors as columns, those of them that the strip has.
inline void place(__m512i* rows, uint8_t* quants, int vectors) {
  transpose16(rows);
  for (int i = 0; i < 16 && i < vectors; ++i) _mm512_store_si512(quants + i * kVector, rows[i]);
}

// Rows that are missing are zeros.
struct SixteenRows {
  const uint8_t* base;
  size_t stride;
  int count;
  const uint8_t* zeros;
  const uint8_t* operator[](int r) const { return r < count ? base + static_cast<size_t>(r) * stride : zeros; }
};
alignas(64) constexpr uint8_t kZeros[256] = {};

uint16_t half_at(const uint8_t* p) {
  uint16_t v;
  __builtin_memcpy(&v, p, 2);
  return v;
}

void pack_q4_numbers(const SixteenRows& rows, int groups, const Q4Strip& at, uint8_t* to) {
  uint16_t* d = reinterpret_cast<uint16_t*>(to);
  uint8_t* low = to + Q4Strip::kLow;
  uint8_t* high = to + at.high;
  __builtin_memset(low, 0, at.quants - Q4Strip::kLow);
  for (int r = 0; r < kStripRows; ++r) {
    d[r] = half_at(rows[r]);
    d[kStripRows + r] = half_at(rows[r] + 2);
    alignas(16) uint8_t numbers[16];  // eight scales, eight minima
    _mm_store_si128(reinterpret_cast<__m128i*>(numbers), q4_numbers(rows[r]));
    for (int g = 0; g < groups; ++g) {
      const int scale = numbers[g], min = numbers[8 + g];
      low[g * kStripRows + r] = static_cast<uint8_t>((scale & 15) | (min & 15) << 4);
      const int upper = scale >> 4 | min >> 4 << 2;
      uint8_t& both = high[g / 4 * 2 * kStripRows + g % 2 * kStripRows + r];
      both = static_cast<uint8_t>(both | upper << (g % 4 / 2 * 4));
    }
  }
}

void pack_q4_quants(const SixteenRows& rows, int groups, uint8_t* quants) {
  const __m512i nibble = _mm512_set1_epi8(15);
  const __m512i shift = join(_mm256_setzero_si256(), _mm256_set1_epi16(4));
  for (int first = 0; first < groups; first += 4) {
    __m512i v[16];
    for (int r = 0; r < kStripRows; ++r) {
      const auto two_groups = [&](int chunk) {  // low, then high nibbles of 32 bytes
        const __m512i both = _mm512_broadcast_i64x4(load32(rows[r] + 16 + 32 * chunk));
        return fold(_mm512_and_si512(_mm512_srlv_epi16(both, shift), nibble));
      };
      v[r] = join(two_groups(first / 2), two_groups(first / 2 + 1));
    }
    place(v, quants + static_cast<size_t>(first) * kQ4GroupBytes, (groups - first) * 4);
  }
}

// 64 columns of a row, two groups, as bytes of six bits: one nibble of 64 bytes of ql, and their pairs of qh.
inline __m512i q6_bytes(const uint8_t* block, int chunk) {
  const int part = chunk / 2, high = chunk % 2;
  const __m512i control = high ? qh_controls(qh_control(4), qh_control(6)) : qh_controls(qh_control(0), qh_control(2));
  const __m512i ql = _mm512_loadu_si512(block + 64 * part);
  const __m512i low = _mm512_and_si512(high ? _mm512_srli_epi16(ql, 4) : ql, _mm512_set1_epi8(15));
  const __m512i qh = _mm512_broadcast_i64x4(load32(block + 128 + 32 * part));
  return _mm512_ternarylogic_epi32(_mm512_multishift_epi64_epi8(control, qh), _mm512_set1_epi8(0x30), low, 0xea);
}

// Of every four dwords (columns 12 … 15 of sixteen in the last) the first three, with two bits of the last above each.
inline void store_q6_dwords(__m512i bytes, uint8_t* twelve) {
  const __m512i last = _mm512_shuffle_epi32(bytes, _MM_PERM_DDDD);
  const __m512i up = _mm512_sllv_epi32(last, _mm512_broadcast_i32x4(_mm_setr_epi32(6, 4, 2, 0)));
  const __m512i three = _mm512_ternarylogic_epi32(up, _mm512_set1_epi8(static_cast<char>(0xc0)), bytes, 0xea);
  _mm512_mask_storeu_epi32(twelve, 0x0fff, _mm512_maskz_compress_epi32(0x7777, three));
}

void pack_q6_quants(const SixteenRows& rows, int groups, uint8_t* quants) {
  constexpr int kEach = kQ6GroupBytes / kVector;  // vectors, to which each row gives a dword
  alignas(kVector) uint8_t dwords[kStripRows][kBlockGroups * kEach * 4];
  for (int r = 0; r < kStripRows; ++r) {
    for (int chunk = 0; chunk < 4; ++chunk) store_q6_dwords(q6_bytes(rows[r], chunk), dwords[r] + chunk * 48);
  }
  for (int first = 0; first < groups * kEach; first += 16) {
    __m512i v[16];
    for (int r = 0; r < kStripRows; ++r) v[r] = _mm512_load_si512(dwords[r] + first * 4);
    place(v, quants + first * kVector, groups * kEach - first);
  }
}

}  // namespace

size_t strip_q4_k(int cols) {
  const int groups = groups_of(cols);
  size_t bytes = 0;
  for (int b = 0; b * kBlockGroups < groups; ++b) bytes += Q4Strip(groups_here(groups, b)).end;
  return bytes;
}

size_t strip_q6_k(int cols) {
  const int groups = groups_of(cols);
  size_t bytes = 0;
  for (int b = 0; b * kBlockGroups < groups; ++b) bytes += Q6Strip(groups_here(groups, b), b).end;
  return bytes;
}

void pack_q4_k(const void* weights, size_t stride, int rows, int cols, void* strip) {
  uint8_t* to = static_cast<uint8_t*>(strip);
  const int groups = groups_of(cols);
  SixteenRows block{static_cast<const uint8_t*>(weights), stride, rows, kZeros};
  for (int b = 0; b * kBlockGroups < groups; ++b, block.base += kQ4Bytes) {
    const int here = groups_here(groups, b);
    const Q4Strip at(here);
    pack_q4_numbers(block, here, at, to);
    pack_q4_quants(block, here, to + at.quants);
    to += at.end;
  }
}

void pack_q6_k(const void* weights, size_t stride, int rows, int cols, void* strip) {
  uint8_t* to = static_cast<uint8_t*>(strip);
  uint8_t* numbers = to;  // d of two blocks
  const int groups = groups_of(cols);
  SixteenRows block{static_cast<const uint8_t*>(weights), stride, rows, kZeros};
  for (int b = 0; b * kBlockGroups < groups; ++b, block.base += kQ6Bytes) {
    const int here = groups_here(groups, b);
    const Q6Strip at(here, b);
    if (b % 2 == 0) __builtin_memset(numbers = to, 0, at.scales);
    __builtin_memset(to + at.scales, 0, at.quants - at.scales);
    for (int r = 0; r < kStripRows; ++r) {
      __builtin_memcpy(numbers + (b % 2 * kStripRows + r) * 2, block[r] + 208, 2);
      for (int g = 0; g < 2 * here; ++g) to[at.scales + static_cast<size_t>(g * kStripRows + r)] = block[r][192 + g];
    }
    pack_q6_quants(block, here, to + at.quants);
    to += at.end;
  }
}

}  // namespace doppler::cpu::avx512
#endif
