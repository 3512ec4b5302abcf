#if defined(__x86_64__)
// Strips of Q4_K or Q6_K back to rows of floats; and two of them into a tile of bytes (tile_bytes_avx512.h), whose step
// is then about a seventeenth of the step of the block's coarsest group in Q4_K, a quarter in Q6_K.
#include "cpu/formats_avx512.h"
#include "cpu/strips_avx512.h"
#include "cpu/tile_bytes_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

// Column i of a group.
inline int q4_column(const uint8_t* quants, int row, int i) {
  return quants[i / 8 * kVector + row * 4 + i % 4] >> (i / 4 % 2 * 4) & 15;
}
inline int q6_column(const uint8_t* quants, int row, int i) {
  const uint8_t* at = quants + i / 16 * 3 * kVector + row * 4 + i % 4;
  const int v = i / 4 % 4;
  return v < 3 ? at[v * kVector] & 63 : at[0] >> 6 | at[kVector] >> 6 << 2 | at[2 * kVector] >> 6 << 4;
}
// Columns of a group that the row has.
inline int columns_here(int cols, int group) { return cols - group * kGroup < kGroup ? cols - group * kGroup : kGroup; }
}  // namespace

void row_q4_k(const void* strip, int row, int cols, float* out) {
  each_q4_group(static_cast<const uint8_t*>(strip), groups_of(cols),
                [&](int g, __m512 scale, __m512 min, const uint8_t* q) {
                  const float s = lane(scale, row), m = lane(min, row);
                  for (int i = 0; i < columns_here(cols, g); ++i)
                    out[g * kGroup + i] = s * static_cast<float>(q4_column(q, row, i)) - m;
                });
}

void row_q6_k(const void* strip, int row, int cols, float* out) {
  each_q6_group(static_cast<const uint8_t*>(strip), groups_of(cols),
                [&](int g, __m512 first, __m512 second, const uint8_t* q) {
                  const float scales[2] = {lane(first, row), lane(second, row)};
                  for (int i = 0; i < columns_here(cols, g); ++i)
                    out[g * kGroup + i] = scales[i / 16] * static_cast<float>(q6_column(q, row, i) - 32);
                });
}

void unpack_q4_k(const void* strips, int rows, int cols, int k0, int depth, void* to) {
  auto* tile = static_cast<ByteTile*>(to);
  const __m512 unit = _mm512_set1_ps(256), zero = _mm512_set1_ps(kHalfByte);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* strip = strip_of(strips, rows, half, strip_q4_k(cols)) + Q4Strip::at(k0);
    __m512 scales[kTileGroups], mins[kTileGroups];
    const uint8_t* quants[kTileGroups];
    each_q4_group(strip, depth / kGroup, [&](int g, __m512 scale, __m512 min, const uint8_t* q) {
      scales[g] = scale;
      mins[g] = min;
      quants[g] = q;
    });
    for (int first = 0; first * kGroup < depth; first += kBlockGroups) {
      const int end = first + groups_here(depth / kGroup, first / kBlockGroups);
      __m512 most = _mm512_setzero_ps(), all = most;
      for (int g = first; g < end; ++g) {
        const __m512 highest = _mm512_fmsub_ps(scales[g], _mm512_set1_ps(15), mins[g]);
        most = _mm512_max_ps(most, _mm512_max_ps(_mm512_abs_ps(highest), _mm512_abs_ps(mins[g])));
        all = _mm512_add_ps(all, highest);
      }
      _mm512_store_ps(tile->scale[first / kBlockGroups] + half * kHalfRows, row_scale(most, all));
      const __m512 to_bytes = _mm512_mul_ps(inverse(most), unit);
      for (int g = first; g < end; ++g) {
        const __m512i a = twice(whole(_mm512_mul_ps(scales[g], to_bytes)));
        const __m512i b = twice(whole(_mm512_fnmadd_ps(mins[g], to_bytes, zero)));
#pragma GCC unroll 8
        for (int s = 0; s < 8; ++s) {
          _mm512_store_si512(tile->q[g * 8 + s][half], bytes(q4_columns(quants[g], s), a, b));
        }
      }
    }
  }
}

void unpack_q6_k(const void* strips, int rows, int cols, int k0, int depth, void* to) {
  auto* tile = static_cast<ByteTile*>(to);
  const __m512 unit = _mm512_set1_ps(256), zero_point = _mm512_set1_ps(32);
  const __m512i zero = _mm512_set1_epi32(static_cast<int>(kHalfByte));
  for (int half = 0; half < 2; ++half) {
    const uint8_t* strip = strip_of(strips, rows, half, strip_q6_k(cols)) + Q6Strip::at(k0);
    __m512 scales[kTileGroups][2];
    const uint8_t* quants[kTileGroups];
    each_q6_group(strip, depth / kGroup, [&](int g, __m512 before, __m512 after, const uint8_t* q) {
      scales[g][0] = before;
      scales[g][1] = after;
      quants[g] = q;
    });
    for (int first = 0; first * kGroup < depth; first += kBlockGroups) {
      const int end = first + groups_here(depth / kGroup, first / kBlockGroups);
      __m512 most = _mm512_setzero_ps(), all = most;
      for (int g = first; g < end; ++g) {
        most = _mm512_max_ps(most, _mm512_max_ps(_mm512_abs_ps(scales[g][0]), _mm512_abs_ps(scales[g][1])));
        all = _mm512_add_ps(all, _mm512_add_ps(scales[g][0], scales[g][1]));
      }
      most = _mm512_mul_ps(most, zero_point);
      _mm512_store_ps(tile->scale[first / kBlockGroups] + half * kHalfRows, row_scale(most, all));
      const __m512 to_bytes = _mm512_mul_ps(inverse(most), unit);
      for (int g = first; g < end; ++g) {
        __m512i a[2], b[2];
        for (int i = 0; i < 2; ++i) {
          const __m512i factor = whole(_mm512_mul_ps(scales[g][i], to_bytes));
          a[i] = twice(factor);
          b[i] = twice(_mm512_sub_epi32(zero, _mm512_slli_epi32(factor, 5)));
        }
#pragma GCC unroll 8
        for (int s = 0; s < 8; ++s) {
          _mm512_store_si512(tile->q[g * 8 + s][half], bytes(q6_columns(quants[g], s), a[s / 4], b[s / 4]));
        }
      }
    }
  }
}

}  // namespace doppler::cpu::avx512
#endif
