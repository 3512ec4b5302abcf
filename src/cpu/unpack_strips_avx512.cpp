#if defined(__x86_64__)
// Two strips of Q4_K or Q6_K into a tile: quants to bytes, scales and minima to floats. Where there is only one strip,
// the tile's other half holds it again.
#include "cpu/formats_avx512.h"
#include "cpu/strips_avx512.h"
#include "cpu/tile_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

struct Halves {
  const uint8_t* strips[2];
  Halves(const void* first, int rows, size_t strip_bytes, size_t offset) {
    const uint8_t* p = static_cast<const uint8_t*>(first) + offset;
    strips[0] = p;
    strips[1] = rows > kStripRows ? p + strip_bytes : p;
  }
};

}  // namespace

void unpack_q4_k(const void* strips, int rows, int cols, int k0, int depth, void* to) {
  QuantTile* tile = static_cast<QuantTile*>(to);
  const Halves halves(strips, rows, strip_q4_k(cols), Q4Strip::at(k0));
  for (int half = 0; half < 2; ++half) {
    const uint8_t* p = halves.strips[half];
    const auto store = [&](float* row, __m512 numbers) { _mm512_store_ps(row + half * kStripRows, numbers); };
    for (int first = 0; first < depth / kGroup; first += kBlockGroups) {
      const int here = groups_here(depth / kGroup, first / kBlockGroups);
      const Q4Strip at(here);
      const __m512 d = row_numbers(p), dmin = row_numbers(p + 2 * kStripRows);
      for (int g = 0; g < here; ++g) {
        const int set = g / 4 * 4 * kStripRows;
        const Q4Numbers numbers(p + Q4Strip::kLow + set, p + at.high + set / 2);
        store(tile->scale[first + g], _mm512_mul_ps(d, Q4Numbers::floats(numbers.scale + g % 4 * kStripRows)));
        store(tile->min[first + g], _mm512_mul_ps(dmin, Q4Numbers::floats(numbers.min + g % 4 * kStripRows)));
        const uint8_t* quants = p + at.quants + static_cast<size_t>(g) * kQ4GroupBytes;
        for (int s = 0; s < 8; ++s) _mm512_store_si512(tile->q[(first + g) * 8 + s][half], q4_columns(quants, s));
      }
      p += at.end;
    }
  }
}

void unpack_q6_k(const void* strips, int rows, int cols, int k0, int depth, void* to) {
  QuantTile* tile = static_cast<QuantTile*>(to);
  const Halves halves(strips, rows, strip_q6_k(cols), Q6Strip::at(k0));
  for (int half = 0; half < 2; ++half) {
    const uint8_t* p = halves.strips[half];
    const uint8_t* numbers = p;
    for (int first = 0; first < depth / kGroup; first += kBlockGroups) {
      const int block = first / kBlockGroups, here = groups_here(depth / kGroup, block);
      const Q6Strip at(here, block);
      if (block % 2 == 0) numbers = p;
      const __m512 d = row_numbers(numbers + block % 2 * 2 * kStripRows);
      for (int g = 0; g < 2 * here; ++g) {
        const __m512 scale = _mm512_mul_ps(d, q6_numbers(p + at.scales + g * kStripRows));
        _mm512_store_ps(tile->scale[2 * first + g] + half * kStripRows, scale);
      }
      for (int g = 0; g < here; ++g) {
        const uint8_t* quants = p + at.quants + static_cast<size_t>(g) * kQ6GroupBytes;
        for (int s = 0; s < 8; ++s) _mm512_store_si512(tile->q[(first + g) * 8 + s][half], q6_columns(quants, s));
      }
      p += at.end;
    }
  }
}

}  // namespace doppler::cpu::avx512
#endif
