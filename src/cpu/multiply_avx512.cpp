#if defined(__x86_64__)
// Tiles of Q4_K and Q6_K times many tokens.
#include "cpu/formats_avx512.h"
#include "cpu/strips_avx512.h"
#include "cpu/tokens_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

// The sums of T tokens and 32 rows, taken up where the tile before left them.
template <int T>
struct Sums {
  __m512 v[T][2];
  Sums(const float* c, bool first) {
#pragma GCC unroll 12
    for (int i = 0; i < 2 * T; ++i) v[i / 2][i % 2] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(c + 16 * i);
  }
  void store(float* c) const {
#pragma GCC unroll 12
    for (int i = 0; i < 2 * T; ++i) _mm512_storeu_ps(c + 16 * i, v[i / 2][i % 2]);
  }
};

template <int T>
void multiply_min_tokens(const QuantTile* tile, int depth, const ActBlock* const* a, float* c, bool first) {
  Sums<T> sums(c, first);
  for (int group = 0; group < depth / kGroup; ++group) {
    const int b = group / kBlockGroups, g = group % kBlockGroups;
    __m512i dot[T][2];
    const int8_t* q[T];
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      dot[t][0] = dot[t][1] = _mm512_setzero_si512();
      q[t] = a[t][b].q + group_offset(g);
    }
    products<T, 8>(tile->q + group * 8, q, dot);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m512 scale = _mm512_load_ps(tile->scale[group] + 16 * half);
      const __m512 min = _mm512_load_ps(tile->min[group] + 16 * half);
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) {
        const __m512 sum = add_scaled(sums.v[t][half], dot[t][half], scale, a[t][b].d[g]);
        sums.v[t][half] = take_min(sum, min, a[t][b].ds[g]);
      }
    }
  }
  sums.store(c);
}

template <int T>
void multiply_centred_tokens(const QuantTile* tile, int depth, const ActBlock* const* a, float* c, bool first) {
  Sums<T> sums(c, first);
  for (int group = 0; group < depth / 16; ++group) {
    const int b = group / (kBlock / 16), g = group % (kBlock / 16);
    __m512i dot[T][2];
    const int8_t* q[T];
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      dot[t][0] = dot[t][1] = _mm512_set1_epi32(a[t][b].zero16[g]);
      q[t] = a[t][b].q + group_offset(g / 2) + (g & 1) * 16;
    }
    products<T, 4>(tile->q + group * 4, q, dot);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m512 scale = _mm512_load_ps(tile->scale[group] + 16 * half);
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) {
        sums.v[t][half] = add_scaled(sums.v[t][half], dot[t][half], scale, a[t][b].d[g / 2]);
      }
    }
  }
  sums.store(c);
}

inline void blocks_of(const void* const* x, size_t offset, int count, const ActBlock** out) {
  for (int t = 0; t < count; ++t) {
    out[t] = reinterpret_cast<const ActBlock*>(static_cast<const uint8_t*>(x[t]) + offset);
  }
}

}  // namespace

void multiply_min(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c, bool first) {
  by_tokens(tokens, [&](auto many, int t) {
    constexpr int kHere = decltype(many)::value;
    const ActBlock* a[kHere];
    blocks_of(x + t, offset, kHere, a);
    multiply_min_tokens<kHere>(static_cast<const QuantTile*>(tile), depth, a, c + t * kTileRows, first);
  });
}

void multiply_centred(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c,
                      bool first) {
  by_tokens(tokens, [&](auto many, int t) {
    constexpr int kHere = decltype(many)::value;
    const ActBlock* a[kHere];
    blocks_of(x + t, offset, kHere, a);
    multiply_centred_tokens<kHere>(static_cast<const QuantTile*>(tile), depth, a, c + t * kTileRows, first);
  });
}

}  // namespace doppler::cpu::avx512
#endif
