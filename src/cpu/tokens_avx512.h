// Tiles times many tokens: six tokens and 32 rows at a time live in registers, an integer and a float accumulator for
// each of the twelve vectors.
#pragma once

#include "cpu/tile_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

constexpr int kTokens = 6;

// `steps` times four columns of T tokens: dot[t][half] += tile · x.
template <int T, int Steps>
inline void products(const uint8_t (*w)[2][64], const int8_t* const* x, __m512i (*dot)[2]) {
#pragma GCC unroll 8
  for (int s = 0; s < Steps; ++s) {
    const __m512i w0 = _mm512_load_si512(w[s][0]), w1 = _mm512_load_si512(w[s][1]);
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      const __m512i a = four(x[t] + 4 * s);
      dot[t][0] = _mm512_dpbusd_epi32(dot[t][0], w0, a);
      dot[t][1] = _mm512_dpbusd_epi32(dot[t][1], w1, a);
    }
  }
}

template <int T>
struct Many {
  static constexpr int value = T;
};

// Calls f(Many<T>, t) over the tokens in sixes, then over what is left.
template <class Function>
inline void by_tokens(int tokens, Function&& f) {
  int t = 0;
  for (; t + kTokens <= tokens; t += kTokens) f(Many<kTokens>{}, t);
  switch (tokens - t) {
    case 1: return f(Many<1>{}, t);
    case 2: return f(Many<2>{}, t);
    case 3: return f(Many<3>{}, t);
    case 4: return f(Many<4>{}, t);
    case 5: return f(Many<5>{}, t);
    default: return;
  }
}

}  // namespace
}  // namespace doppler::cpu::avx512
