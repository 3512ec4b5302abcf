#if defined(__x86_64__)
// Weight rows into tiles. Rows past the last are the last again: their results are never read.
#include "cpu/formats_avx2.h"
#include "cpu/k_blocks_avx2.h"
#include "cpu/tile_avx2.h"

namespace doppler::cpu::avx2 {
namespace {

struct Rows {
  const uint8_t* base;
  size_t stride;
  int count;
  const uint8_t* operator[](int r) const { return base + static_cast<size_t>(r < count ? r : count - 1) * stride; }
};

// Eight rows of 32 bytes each, as `bytes(row)` gives them, into columns 4·step … of one quarter of the tile.
template <class Function>
inline void place_bytes(QuantTile* tile, int step, int quarter, Function&& bytes) {
  __m256i v[8];
  for (int r = 0; r < 8; ++r) v[r] = bytes(quarter * kQuarter + r);
  transpose8(v);
  for (int i = 0; i < 8; ++i) _mm256_store_si256(reinterpret_cast<__m256i*>(tile->q[step + i][quarter]), v[i]);
}

// Eight numbers of each of eight rows, transposed to out[number] + 8 · quarter.
template <class Function>
inline void place_numbers(float (*out)[kTileRows], int quarter, int count, Function&& numbers) {
  __m256i v[8];
  for (int r = 0; r < 8; ++r) v[r] = _mm256_castps_si256(numbers(quarter * kQuarter + r));
  transpose8(v);
  for (int i = 0; i < count; ++i) _mm256_store_ps(out[i] + quarter * kQuarter, _mm256_castsi256_ps(v[i]));
}

// Rows hold units for their own columns only; past them the tile is zero.
template <class Unit>
void unpack_units(const void* weights, size_t stride, int rows, int k, int k0, int depth, QuantTile* tile) {
  const Rows all{static_cast<const uint8_t*>(weights) + static_cast<size_t>(k0 / 32) * Unit::kBytes, stride, rows};
  const int units = (k + 31) / 32 - k0 / 32;  // this row has from k0 on
  for (int u = 0; u < depth / kGroup; ++u) {
    const size_t at = static_cast<size_t>(u) * Unit::kBytes;
    for (int quarter = 0; quarter < 4; ++quarter) {
      place_bytes(tile, u * 8, quarter,
                  [&](int r) { return u < units ? Unit::quants(all[r] + at) : _mm256_setzero_si256(); });
    }
    for (int r = 0; r < kTileRows; ++r) tile->scale[u][r] = u < units ? Unit::scale(all[r] + at) : 0.0f;
  }
}

}  // namespace

void unpack_q4_k(const void* weights, size_t stride, int rows, int /*k*/, int k0, int depth, void* to) {
  QuantTile* tile = static_cast<QuantTile*>(to);
  const Rows all{static_cast<const uint8_t*>(weights) + static_cast<size_t>(k0 / kBlock) * kQ4Bytes, stride, rows};
  for (int b = 0; b < (depth + kBlock - 1) / kBlock; ++b) {
    const size_t at = static_cast<size_t>(b) * kQ4Bytes;
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int g = 0; g < 8; ++g) {
        place_bytes(tile, b * 64 + g * 8, quarter, [&](int r) {
          __m256i even, odd;
          q4_groups(all[r] + at, g / 2, even, odd);
          return g % 2 ? odd : even;
        });
      }
      Vf scales, mins;
      place_numbers(tile->scale + b * 8, quarter, 8, [&](int r) {
        q4_scales(all[r] + at, scales, mins);
        return scales;
      });
      place_numbers(tile->min + b * 8, quarter, 8, [&](int r) {
        q4_scales(all[r] + at, scales, mins);
        return mins;
      });
    }
  }
}

void unpack_q6_k(const void* weights, size_t stride, int rows, int /*k*/, int k0, int depth, void* to) {
  QuantTile* tile = static_cast<QuantTile*>(to);
  const Rows all{static_cast<const uint8_t*>(weights) + static_cast<size_t>(k0 / kBlock) * kQ6Bytes, stride, rows};
  for (int b = 0; b < (depth + kBlock - 1) / kBlock; ++b) {
    const size_t at = static_cast<size_t>(b) * kQ6Bytes;
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int g = 0; g < 8; ++g) {
        place_bytes(tile, b * 64 + g * 8, quarter, [&](int r) {
          __m256i q[4];
          q6_groups(all[r] + at, g / 4, q);
          return q[g % 4];
        });
      }
      Vf low, high;
      place_numbers(tile->scale + b * 16, quarter, 8, [&](int r) {
        q6_scales(all[r] + at, low, high);
        return low;
      });
      place_numbers(tile->scale + b * 16 + 8, quarter, 8, [&](int r) {
        q6_scales(all[r] + at, low, high);
        return high;
      });
    }
  }
}

void unpack_q8_0(const void* weights, size_t stride, int rows, int k, int k0, int depth, void* to) {
  unpack_units<Q8Unit>(weights, stride, rows, k, k0, depth, static_cast<QuantTile*>(to));
}

void unpack_mxfp4(const void* weights, size_t stride, int rows, int k, int k0, int depth, void* to) {
  unpack_units<MxUnit>(weights, stride, rows, k, k0, depth, static_cast<QuantTile*>(to));
}

}  // namespace doppler::cpu::avx2
#endif
