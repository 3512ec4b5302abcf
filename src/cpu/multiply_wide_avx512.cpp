#if defined(__x86_64__)
// Tiles of Q8_0 and MXFP4 times many tokens of 15-bit activations.
#include "cpu/formats_avx512.h"
#include "cpu/tokens_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

// The sums of one block of 256 columns; a whole block is added to c at once, as block_sums_avx512.h does for one token.
template <int T>
struct Sums {
  __m512 v[T][2];
  Sums() { clear(); }
  void clear() {
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) v[t][0] = v[t][1] = _mm512_setzero_ps();
  }
  void add(int t, int half, __m512 term) { v[t][half] = _mm512_add_ps(v[t][half], term); }
  void flush(float* c, bool first) {
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        float* to = c + t * kTileRows + 16 * half;
        _mm512_storeu_ps(to, first ? v[t][half] : _mm512_add_ps(_mm512_loadu_ps(to), v[t][half]));
      }
    }
    clear();
  }
};

// The products of one group of 32 columns, whose quants lie at `at` of a token's block.
template <int T>
inline void group_products(const uint8_t (*w)[2][64], const WideBlock* const* a, int b, int at, __m512i (*dot)[2]) {
  const int8_t* q[T];
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t) {
    dot[t][0] = dot[t][1] = _mm512_setzero_si512();
    q[t] = a[t][b].high + at;
  }
  products<T, 8>(w, q, dot);
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t) {
    dot[t][0] = _mm512_slli_epi32(dot[t][0], 7);
    dot[t][1] = _mm512_slli_epi32(dot[t][1], 7);
    q[t] = a[t][b].low + at;
  }
  products<T, 8>(w, q, dot);
}

template <int T>
void multiply_tokens(const QuantTile* tile, int depth, const void* const* x, size_t offset, float* c, bool first) {
  const WideBlock* a[T];
  for (int t = 0; t < T; ++t) a[t] = reinterpret_cast<const WideBlock*>(static_cast<const uint8_t*>(x[t]) + offset);
  Sums<T> sums;
  for (int group = 0; group < depth / kGroup; ++group) {
    const int b = group / (kBlock / kGroup), g = group % (kBlock / kGroup);
    __m512i dot[T][2];
    group_products<T>(tile->q + group * 8, a, b, group_offset(g), dot);
    const __m512 s0 = _mm512_load_ps(tile->scale[group]), s1 = _mm512_load_ps(tile->scale[group] + 16);
    const __m512 m0 = _mm512_load_ps(tile->min[group]), m1 = _mm512_load_ps(tile->min[group] + 16);
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      const __m512 d = _mm512_set1_ps(a[t][b].d[g]), ds = _mm512_set1_ps(a[t][b].ds[g]);
      sums.add(t, 0, _mm512_fnmadd_ps(m0, ds, _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(dot[t][0]), d), s0)));
      sums.add(t, 1, _mm512_fnmadd_ps(m1, ds, _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(dot[t][1]), d), s1)));
    }
    if (g == kBlock / kGroup - 1 || group == depth / kGroup - 1) sums.flush(c, first && b == 0);
  }
}

}  // namespace

void multiply_wide(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c, bool first) {
  by_tokens(tokens, [&](auto many, int t) {
    multiply_tokens<decltype(many)::value>(static_cast<const QuantTile*>(tile), depth, x + t, offset, c + t * kTileRows,
                                           first);
  });
}

}  // namespace doppler::cpu::avx512
#endif
