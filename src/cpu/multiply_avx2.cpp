#if defined(__x86_64__)
// Tiles of weights times many tokens with AVX2: sixteen rows and three tokens at a time.
#include "cpu/formats_avx2.h"
#include "cpu/tile_avx2.h"

namespace doppler::cpu::avx2 {
namespace {

constexpr int kTokens = 3;

inline __m256i four(const int8_t* q) {
  int32_t v;
  __builtin_memcpy(&v, q, 4);
  return _mm256_set1_epi32(v);
}
inline __m256i rows8(const QuantTile* tile, int step, int quarter) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(tile->q[step][quarter]));
}
inline __m256i pairs_to_i32(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }

// T tokens times quarters 2h and 2h+1 of a group of `Steps` times four columns, as int32. Each kind of weight has its
// own safe way to sum products of 8 bits.
// Quants from 0 on, `Together` of whose products fit in int16.
template <int Columns, int Together>
struct MinProducts {
  using X = ActBlock;
  static constexpr int kColumns = Columns;
  template <int T>
  static void run(const QuantTile* tile, int step, int q0, const ActBlock* const* x, int b, int at, __m256i (*dot)[2]) {
    constexpr int kSteps = Columns / 4;
#pragma GCC unroll 2
    for (int from = 0; from < kSteps; from += Together) {
      __m256i pairs[T][2];
      for (int t = 0; t < T; ++t) pairs[t][0] = pairs[t][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
      for (int s = from; s < from + Together; ++s) {
        const __m256i w0 = rows8(tile, step + s, q0), w1 = rows8(tile, step + s, q0 + 1);
#pragma GCC unroll 3
        for (int t = 0; t < T; ++t) {
          const __m256i a = four(x[t][b].q + at + 4 * s);
          pairs[t][0] = _mm256_add_epi16(pairs[t][0], _mm256_maddubs_epi16(w0, a));
          pairs[t][1] = _mm256_add_epi16(pairs[t][1], _mm256_maddubs_epi16(w1, a));
        }
      }
      for (int t = 0; t < T; ++t) {
        for (int i = 0; i < 2; ++i) {
          const __m256i sum = pairs_to_i32(pairs[t][i]);
          dot[t][i] = from == 0 ? sum : _mm256_add_epi32(dot[t][i], sum);
        }
      }
    }
  }
};
using Min4Products = MinProducts<32, 8>;   // 15 · 127 · 2 · 8 fits
using Min5Products = MinProducts<32, 4>;   // 31 · 127 · 2 · 4
using Min16Products = MinProducts<16, 4>;  // 7 · 127 · 2 · 4

struct CentredProducts {  // 63 · 127 · 2 · 2 fits in int16
  using X = ActBlock;
  static constexpr int kColumns = 16;
  template <int T>
  static void run(const QuantTile* tile, int step, int q0, const ActBlock* const* x, int b, int at, __m256i (*dot)[2]) {
    const int part = step % (kBlock / 4) / 4;  // of 16 columns
    for (int t = 0; t < T; ++t) dot[t][0] = dot[t][1] = _mm256_set1_epi32(x[t][b].zero16[part]);
#pragma GCC unroll 2
    for (int s = 0; s < 4; s += 2) {
      const __m256i w0 = rows8(tile, step + s, q0), w1 = rows8(tile, step + s, q0 + 1);
      const __m256i v0 = rows8(tile, step + s + 1, q0), v1 = rows8(tile, step + s + 1, q0 + 1);
#pragma GCC unroll 3
      for (int t = 0; t < T; ++t) {
        const __m256i a = four(x[t][b].q + at + 4 * s), c = four(x[t][b].q + at + 4 * s + 4);
        const __m256i p0 = _mm256_add_epi16(_mm256_maddubs_epi16(w0, a), _mm256_maddubs_epi16(v0, c));
        const __m256i p1 = _mm256_add_epi16(_mm256_maddubs_epi16(w1, a), _mm256_maddubs_epi16(v1, c));
        dot[t][0] = _mm256_add_epi32(dot[t][0], pairs_to_i32(p0));
        dot[t][1] = _mm256_add_epi32(dot[t][1], pairs_to_i32(p1));
      }
    }
  }
};

// Signed quants: the activation takes the weight's sign, and 128 · 127 · 2 fits in int16.
template <int T>
inline void add_signed(const QuantTile* tile, int step, int q0, const int8_t* const* x, __m256i (*dot)[2]) {
  for (int s = 0; s < 8; ++s) {
    const __m256i w0 = rows8(tile, step + s, q0), w1 = rows8(tile, step + s, q0 + 1);
    const __m256i m0 = _mm256_sign_epi8(w0, w0), m1 = _mm256_sign_epi8(w1, w1);
#pragma GCC unroll 3
    for (int t = 0; t < T; ++t) {
      const __m256i a = four(x[t] + 4 * s);
      dot[t][0] = _mm256_add_epi32(dot[t][0], pairs_to_i32(_mm256_maddubs_epi16(m0, _mm256_sign_epi8(a, w0))));
      dot[t][1] = _mm256_add_epi32(dot[t][1], pairs_to_i32(_mm256_maddubs_epi16(m1, _mm256_sign_epi8(a, w1))));
    }
  }
}

struct LevelProducts {
  using X = ActBlock;
  static constexpr int kColumns = 32;
  template <int T>
  static void run(const QuantTile* tile, int step, int q0, const ActBlock* const* a, int b, int at, __m256i (*dot)[2]) {
    const int8_t* q[T];
    for (int t = 0; t < T; ++t) {
      dot[t][0] = dot[t][1] = _mm256_setzero_si256();
      q[t] = a[t][b].q + at;
    }
    add_signed<T>(tile, step, q0, q, dot);
  }
};

struct WideProducts {
  using X = WideBlock;
  static constexpr int kColumns = 32;
  template <int T>
  static void run(const QuantTile* tile, int step, int q0, const WideBlock* const* a, int b, int at,
                  __m256i (*dot)[2]) {
    const int8_t *high[T], *low[T];
    for (int t = 0; t < T; ++t) {
      dot[t][0] = dot[t][1] = _mm256_setzero_si256();
      high[t] = a[t][b].high + at;
      low[t] = a[t][b].low + at;
    }
    add_signed<T>(tile, step, q0, high, dot);
    for (int t = 0; t < T; ++t) {
      dot[t][0] = _mm256_slli_epi32(dot[t][0], 7);
      dot[t][1] = _mm256_slli_epi32(dot[t][1], 7);
    }
    add_signed<T>(tile, step, q0, low, dot);
  }
};

// The sums of one block of 256 columns; a whole block is added to c at once, as block_sums_avx2.h does for one token.
template <int T>
struct Sums {
  Vf v[T][2];
  Sums() { clear(); }
  void clear() {
    for (int t = 0; t < T; ++t) v[t][0] = v[t][1] = zero();
  }
  void flush(float* c, bool first) {
    for (int t = 0; t < T; ++t) {
      for (int i = 0; i < 2; ++i) {
        float* to = c + t * kTileRows + 8 * i;
        store(to, first ? v[t][i] : add(load(to), v[t][i]));
      }
    }
    clear();
  }
};

// What a minimum multiplies: d times the sum of the activations of a group, or of one half of it.
inline float sum_of(const ActBlock& a, int g, int part, int columns) {
  return columns == kGroup ? a.ds[g] : static_cast<float>(a.zero16[part]) * (-1.0f / 32) * a.d[g];
}

template <int T, class Products, bool Min>
void quant_tokens(const QuantTile* tile, int depth, const void* const* x, size_t offset, float* c, bool first) {
  constexpr int kInBlock = kBlock / Products::kColumns, kInGroup = kGroup / Products::kColumns;
  const typename Products::X* a[T];
  for (int t = 0; t < T; ++t) {
    a[t] = reinterpret_cast<const typename Products::X*>(static_cast<const uint8_t*>(x[t]) + offset);
  }
  for (int half = 0; half < 2; ++half) {
    float* to = c + 16 * half;
    Sums<T> sums;
    for (int group = 0; group < depth / Products::kColumns; ++group) {
      const int b = group / kInBlock, part = group % kInBlock, g = part / kInGroup;
      __m256i dot[T][2];
      Products::template run<T>(tile, group * (Products::kColumns / 4), 2 * half, a, b,
                                group_offset(g) + part % kInGroup * Products::kColumns, dot);
      for (int i = 0; i < 2; ++i) {
        const Vf scale = load(tile->scale[group] + 16 * half + 8 * i);
        for (int t = 0; t < T; ++t) {
          Vf term = mul(mul(_mm256_cvtepi32_ps(dot[t][i]), set1(a[t][b].d[g])), scale);
          if constexpr (Min) {
            const float sum = sum_of(a[t][b], g, part, Products::kColumns);
            term = fnma(load(tile->min[group] + 16 * half + 8 * i), set1(sum), term);
          }
          sums.v[t][i] = add(sums.v[t][i], term);
        }
      }
      if (part == kInBlock - 1 || group == depth / Products::kColumns - 1) sums.flush(to, first && b == 0);
    }
  }
}

template <class Products, bool Min>
void quant(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c, bool first) {
  const QuantTile* q = static_cast<const QuantTile*>(tile);
  int t = 0;
  for (; t + kTokens <= tokens; t += kTokens) {
    quant_tokens<kTokens, Products, Min>(q, depth, x + t, offset, c + t * kTileRows, first);
  }
  if (tokens - t == 2) quant_tokens<2, Products, Min>(q, depth, x + t, offset, c + t * kTileRows, first);
  if (tokens - t == 1) quant_tokens<1, Products, Min>(q, depth, x + t, offset, c + t * kTileRows, first);
}

}  // namespace

void multiply_min(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c, bool first) {
  quant<Min4Products, true>(tile, depth, x, offset, tokens, c, first);
}

void multiply_min5(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c, bool first) {
  quant<Min5Products, true>(tile, depth, x, offset, tokens, c, first);
}

void multiply_min16(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c,
                    bool first) {
  quant<Min16Products, true>(tile, depth, x, offset, tokens, c, first);
}

void multiply_levels(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c,
                     bool first) {
  quant<LevelProducts, false>(tile, depth, x, offset, tokens, c, first);
}

void multiply_centred(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c,
                      bool first) {
  quant<CentredProducts, false>(tile, depth, x, offset, tokens, c, first);
}

void multiply_wide(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c, bool first) {
  quant<WideProducts, false>(tile, depth, x, offset, tokens, c, first);
}

}  // namespace doppler::cpu::avx2
#endif
