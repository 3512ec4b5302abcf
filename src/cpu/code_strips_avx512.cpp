#if defined(__x86_64__)
// Rows of small codes into strips, and strips into tiles of bytes (unpack_strips_avx512.cpp says how) or back to rows.
#include "cpu/code_strips_avx512.h"

#include "cpu/code_vectors.h"
#include "cpu/formats_avx512.h"
#include "cpu/tile_bytes_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

void put_half(const uint8_t* from, uint8_t* halves, int row, int sign = 0) {
  uint16_t h;
  __builtin_memcpy(&h, from, 2);
  h = static_cast<uint16_t>(h ^ sign);
  __builtin_memcpy(halves + 2 * row, &h, 2);
}

// Block b of one row, of which `groups` groups are there.
template <class T>
void pack_numbers(const uint8_t* block, int groups, int row, uint8_t* to) {
  constexpr size_t kHalves = 2 * kStripRows;
  if constexpr (T::kColumns < kBlock) {
    for (int g = 0; g < groups; ++g, block += T::kBytes, to += kHalves) {
      put_half(block + T::kD, to, row);
      if (T::kMin) put_half(block + T::kDmin, to + kBlockGroups * kHalves, row, 0x8000);
    }
    return;
  } else {
    put_half(block + T::kD, to, row);
    if (T::kMin) put_half(block + T::kDmin, to + kHalves, row);
    to += kHalvesBytes<T>;
    const CodeNumbers n = T::numbers(block);
    if constexpr (kNibbleNumbers<T>) {
      for (int i = 0; i < 16; ++i) to[i * kStripRows + row] = static_cast<uint8_t>(n.scale[i] | n.min[i] << 4);
    } else {
      constexpr int kEach = kSixBits<T> / 2;
      uint8_t* high = to + kEach * kStripRows;
      const uint8_t *first = n.scale, *second = T::kMin ? n.min : n.scale + kEach;
      for (int i = 0; i < kEach; ++i) {
        to[i * kStripRows + row] = static_cast<uint8_t>((first[i] & 15) | (second[i] & 15) << 4);
        const int upper = first[i] >> 4 | second[i] >> 4 << 2;
        uint8_t& both = high[i / 4 * 2 * kStripRows + i % 2 * kStripRows + row];
        both = static_cast<uint8_t>(both | upper << (i % 4 / 2 * 4));
      }
    }
  }
}

// The planes of one group, from eight vectors of four columns of sixteen rows.
template <class T>
void place_planes(const __m512i* columns, uint8_t* quants) {
  constexpr int kLow = kLowBits<T>, kIn = 8 / kLow;
  const __m512i mask = _mm512_set1_epi8((1 << kLow) - 1), one = _mm512_set1_epi8(1);
#pragma GCC unroll 4
  for (int v = 0; v < kLow; ++v) {
    __m512i all = _mm512_and_si512(columns[v * kIn], mask);
#pragma GCC unroll 4
    for (int i = 1; i < kIn; ++i) {
      all = _mm512_or_si512(all, _mm512_slli_epi16(_mm512_and_si512(columns[v * kIn + i], mask), i * kLow));
    }
    _mm512_store_si512(quants + v * kVector, all);
  }
  if (T::kBits == kLow) return;
  __m512i all = _mm512_setzero_si512();
#pragma GCC unroll 8
  for (int s = 0; s < 8; ++s) {
    const __m512i bit = _mm512_and_si512(_mm512_srli_epi16(columns[s], kLow), one);
    all = _mm512_or_si512(all, _mm512_slli_epi16(bit, s));
  }
  _mm512_store_si512(quants + kLowBytes<T>, all);
}

}  // namespace

template <FormatId F>
size_t strip_codes(int cols) {
  return code_strip_bytes<Codes<F>>(cols);
}

template <FormatId F>
void pack_codes(const void* weights, size_t stride, int rows, int cols, void* strip) {
  using T = Codes<F>;
  uint8_t* to = static_cast<uint8_t*>(strip);
  const int groups = groups_of(cols);
  const uint8_t* base = static_cast<const uint8_t*>(weights);
  for (int b = 0; b * kBlockGroups < groups; ++b, base += kCodeBytes<T>) {
    const int here = groups_here(groups, b);
    __builtin_memset(to, 0, kNumberBytes<T>);
    for (int r = 0; r < rows; ++r) pack_numbers<T>(base + static_cast<size_t>(r) * stride, here, r, to);
    to += kNumberBytes<T>;
    for (int g = 0; g < here; g += 2) {
      __m512i v[kStripRows];
#pragma GCC unroll 16
      for (int r = 0; r < kStripRows; ++r) {
        if (r >= rows) {
          v[r] = _mm512_setzero_si512();
          continue;
        }
        const uint8_t* row = base + static_cast<size_t>(r) * stride;
        const __m256i first = row_codes<T>(row, g);
        const __m256i second = g + 1 < here ? row_codes<T>(row, g + 1) : _mm256_setzero_si256();
        v[r] = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
      }
      transpose16(v);
      place_planes<T>(v, to);
      to += kCodeGroupBytes<T>;
      if (g + 1 == here) break;
      place_planes<T>(v + 8, to);
      to += kCodeGroupBytes<T>;
    }
  }
}

template <FormatId F>
void row_of_codes(const void* strip, int row, int cols, float* out) {
  using T = Codes<F>;
  each_code_group<T>(static_cast<const uint8_t*>(strip), groups_of(cols),
                     [&](int g, const __m512* scale, const __m512* min, const uint8_t* q) {
                       for (int i = 0; i < kGroup && g * kGroup + i < cols; ++i) {
                         const float s = lane(scale[i / T::kPart], row), m = lane(min[i / T::kPart], row);
                         const int code = code_at<T>(q, row, i);
                         out[g * kGroup + i] =
                             T::kMin ? s * static_cast<float>(code) - m : s * static_cast<float>(code - T::kZero);
                       }
                     });
}

template <FormatId F>
void unpack_codes(const void* strips, int rows, int cols, int k0, int depth, void* to) {
  using T = Codes<F>;
  constexpr int kParts = kGroup / T::kPart, kSteps = T::kPart / 4;
  auto* tile = static_cast<ByteTile*>(to);
  const __m512 unit = _mm512_set1_ps(256), zero = _mm512_set1_ps(kHalfByte);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* strip = strip_of(strips, rows, half, code_strip_bytes<T>(cols)) + code_block_at<T>(k0);
    __m512 scales[kTileGroups][kParts], mins[kTileGroups][kParts];
    const uint8_t* quants[kTileGroups];
    each_code_group<T>(strip, depth / kGroup, [&](int g, const __m512* scale, const __m512* min, const uint8_t* q) {
      for (int i = 0; i < kParts; ++i) {
        scales[g][i] = scale[i];
        mins[g][i] = min[i];
      }
      quants[g] = q;
    });
    for (int first = 0; first * kGroup < depth; first += kBlockGroups) {
      const int end = first + groups_here(depth / kGroup, first / kBlockGroups);
      __m512 most = _mm512_setzero_ps(), all = most;
      for (int g = first; g < end; ++g) {
        for (int i = 0; i < kParts; ++i) {
          const __m512 highest = _mm512_fmsub_ps(scales[g][i], _mm512_set1_ps(kMostCode<T>), mins[g][i]);
          const __m512 lowest = _mm512_fmsub_ps(scales[g][i], _mm512_set1_ps(kLeastCode<T>), mins[g][i]);
          most = _mm512_max_ps(most, _mm512_max_ps(_mm512_abs_ps(highest), _mm512_abs_ps(lowest)));
          all = _mm512_add_ps(all, highest);
        }
      }
      _mm512_store_ps(tile->scale[first / kBlockGroups] + half * kHalfRows, row_scale(most, all));
      const __m512 to_bytes = _mm512_mul_ps(inverse(most), unit);
      for (int g = first; g < end; ++g) {
        __m512i a[kParts], b[kParts];
        for (int i = 0; i < kParts; ++i) {
          const __m512i factor = whole(_mm512_mul_ps(scales[g][i], to_bytes));
          a[i] = twice(factor);
          // A zero point is taken away as often as the rounded factor has it.
          b[i] = T::kMin
                     ? twice(whole(_mm512_fnmadd_ps(mins[g][i], to_bytes, zero)))
                     : twice(_mm512_sub_epi32(whole(zero), _mm512_mullo_epi32(factor, _mm512_set1_epi32(T::kZero))));
        }
#pragma GCC unroll 8
        for (int s = 0; s < 8; ++s) {
          const __m512i q = code_columns<T>(quants[g], s);
          _mm512_store_si512(tile->q[g * 8 + s][half], bytes(q, a[s / kSteps], b[s / kSteps]));
        }
      }
    }
  }
}

#define DOPPLER_CODES(format)                                                 \
  template size_t strip_codes<format>(int);                                   \
  template void pack_codes<format>(const void*, size_t, int, int, void*);     \
  template void unpack_codes<format>(const void*, int, int, int, int, void*); \
  template void row_of_codes<format>(const void*, int, int, float*);
DOPPLER_CODES(kFormatQ4_0)
DOPPLER_CODES(kFormatQ4_1)
DOPPLER_CODES(kFormatQ5_0)
DOPPLER_CODES(kFormatQ5_1)
DOPPLER_CODES(kFormatQ2_K)
DOPPLER_CODES(kFormatQ3_K)
DOPPLER_CODES(kFormatQ5_K)
DOPPLER_CODES(kFormatIQ4_NL)
DOPPLER_CODES(kFormatIQ4_XS)
#undef DOPPLER_CODES

}  // namespace doppler::cpu::avx512
#endif
