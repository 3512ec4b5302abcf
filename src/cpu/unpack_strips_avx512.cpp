#if defined(__x86_64__)
// Two strips of Q4_K or Q6_K into a tile: quants to bytes, scales and minima to floats.
#include "cpu/formats_avx512.h"
#include "cpu/strips_avx512.h"
#include "cpu/tile_avx512.h"

namespace doppler::cpu::avx512 {

void unpack_q4_k(const void* strips, int rows, int cols, int k0, int depth, void* to) {
  QuantTile* tile = static_cast<QuantTile*>(to);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* strip = strip_of(strips, rows, half, strip_q4_k(cols)) + Q4Strip::at(k0);
    each_q4_group(strip, depth / kGroup, [&](int g, __m512 scale, __m512 min, const uint8_t* quants) {
      _mm512_store_ps(tile->scale[g] + half * kStripRows, scale);
      _mm512_store_ps(tile->min[g] + half * kStripRows, min);
      for (int s = 0; s < 8; ++s) _mm512_store_si512(tile->q[g * 8 + s][half], q4_columns(quants, s));
    });
  }
}

void unpack_q6_k(const void* strips, int rows, int cols, int k0, int depth, void* to) {
  QuantTile* tile = static_cast<QuantTile*>(to);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* strip = strip_of(strips, rows, half, strip_q6_k(cols)) + Q6Strip::at(k0);
    each_q6_group(strip, depth / kGroup, [&](int g, __m512 first, __m512 second, const uint8_t* quants) {
      _mm512_store_ps(tile->scale[2 * g] + half * kStripRows, first);
      _mm512_store_ps(tile->scale[2 * g + 1] + half * kStripRows, second);
      for (int s = 0; s < 8; ++s) _mm512_store_si512(tile->q[g * 8 + s][half], q6_columns(quants, s));
    });
  }
}

}  // namespace doppler::cpu::avx512
#endif
