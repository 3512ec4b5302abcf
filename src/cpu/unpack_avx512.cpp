#if defined(__x86_64__)
// Weight rows into tiles. Rows past the last are the last again: their results are never read.
#include "cpu/formats_avx512.h"
#include "cpu/k_blocks_avx512.h"
#include "cpu/tile_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

struct Rows {
  const uint8_t* base;
  size_t stride;
  int count;
  const uint8_t* operator[](int r) const { return base + static_cast<size_t>(r < count ? r : count - 1) * stride; }
};

// Sixteen rows of 64 bytes each, as `bytes(row)` gives them, into columns 4·step … of one half of the tile.
template <class Function>
inline void place_bytes(QuantTile* tile, int step, int half, Function&& bytes) {
  __m512i v[16];
  for (int r = 0; r < 16; ++r) v[r] = bytes(half * kHalfRows + r);
  transpose16(v);
  for (int i = 0; i < 16; ++i) _mm512_store_si512(tile->q[step + i][half], v[i]);
}

// Sixteen numbers of each of sixteen rows, transposed.
template <class Function>
inline void transposed(__m512* out, int half, Function&& numbers) {
  __m512i v[16];
  for (int r = 0; r < 16; ++r) v[r] = _mm512_castps_si512(numbers(half * kHalfRows + r));
  transpose16(v);
  for (int i = 0; i < 16; ++i) out[i] = _mm512_castsi512_ps(v[i]);
}

// The minimum of every group is its offset times its scale. Rows hold units for their own columns only; past them the
// scale is zero.
template <class Unit>
void unpack_units(const void* weights, size_t stride, int rows, int k, int k0, int depth, QuantTile* tile) {
  const Rows all{static_cast<const uint8_t*>(weights) + static_cast<size_t>(k0 / 32) * Unit::kBytes, stride, rows};
  const int units = (k + 31) / 32 - k0 / 32;  // this row has from k0 on
  for (int half = 0; half < 2; ++half) {
    for (int chunk = 0; chunk < (depth + 63) / 64; ++chunk) {
      place_bytes(tile, chunk * 16, half, [&](int r) {
        const auto unit = [&](int u) {
          return u < units ? Unit::quants(all[r] + static_cast<size_t>(u) * Unit::kBytes) : _mm256_setzero_si256();
        };
        return join(unit(2 * chunk), unit(2 * chunk + 1));
      });
    }
    __m512 scales[16];
    const int count = depth / 32 < units ? depth / 32 : units;
    transposed(scales, half, [&](int r) { return Unit::scales(all[r], count); });
    for (int g = 0; g < depth / kGroup; ++g) {
      _mm512_store_ps(tile->scale[g] + half * kHalfRows, scales[g]);
      _mm512_store_ps(tile->min[g] + half * kHalfRows, _mm512_mul_ps(scales[g], _mm512_set1_ps(Unit::kOffset)));
    }
  }
}

}  // namespace

void unpack_q8_0(const void* weights, size_t stride, int rows, int k, int k0, int depth, void* to) {
  unpack_units<Q8Unit>(weights, stride, rows, k, k0, depth, static_cast<QuantTile*>(to));
}

void unpack_mxfp4(const void* weights, size_t stride, int rows, int k, int k0, int depth, void* to) {
  unpack_units<MxUnit>(weights, stride, rows, k, k0, depth, static_cast<QuantTile*>(to));
}

}  // namespace doppler::cpu::avx512
#endif
