#if defined(__x86_64__)
// Tiles of Q4_K and Q6_K times many tokens. Weights and activations are bytes with one scale for a block of 256
// columns, so that the products are all but the only work: with the formats' own scales, one for 16 or 32 columns, they
// were two thirds of it.
#include "cpu/formats_avx512.h"
#include "cpu/tokens_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

// Adds 32 rows times T tokens over one block of `steps` times four columns to c, or sets it when `first`.
template <int T>
void block_tokens(const uint8_t (*w)[2][64], const float* scales, int steps, const ByteBlock* const* a, float* c,
                  bool first) {
  __m512i dot[T][2];
  const int8_t* q[T];
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t) {
    dot[t][0] = dot[t][1] = _mm512_set1_epi32(a[t]->zero);
    q[t] = a[t]->q;
  }
  for (int s = 0; s < steps; s += kGroup / 4) {
    products<T, kGroup / 4>(w + s, q, dot);
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) q[t] += kGroup;
  }
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const __m512 scale = _mm512_load_ps(scales + half * kHalfRows);
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      float* to = c + t * kTileRows + half * kHalfRows;
      const __m512 term = _mm512_mul_ps(_mm512_cvtepi32_ps(dot[t][half]), scale), d = _mm512_set1_ps(a[t]->d);
      _mm512_storeu_ps(to, first ? _mm512_mul_ps(term, d) : _mm512_fmadd_ps(term, d, _mm512_loadu_ps(to)));
    }
  }
}

}  // namespace

void multiply_bytes(const void* weights, int depth, const void* const* x, size_t offset, int tokens, float* c,
                    bool first) {
  const auto* tile = static_cast<const ByteTile*>(weights);
  by_tokens(tokens, [&](auto many, int t) {
    constexpr int kHere = decltype(many)::value;
    for (int b = 0; b * kBlock < depth; ++b) {
      const ByteBlock* a[kHere];
      for (int i = 0; i < kHere; ++i) {
        a[i] = reinterpret_cast<const ByteBlock*>(static_cast<const uint8_t*>(x[t + i]) + offset) + b;
      }
      const int columns = depth - b * kBlock < kBlock ? depth - b * kBlock : kBlock;
      block_tokens<kHere>(tile->q + b * (kBlock / 4), tile->scale[b], columns / 4, a, c + t * kTileRows,
                          first && b == 0);
    }
  });
}

}  // namespace doppler::cpu::avx512
#endif
