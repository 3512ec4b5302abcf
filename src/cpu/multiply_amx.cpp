#if defined(__x86_64__)
// Tiles of Q4_K and Q6_K times many tokens with AMX: what multiply_avx512.cpp does, to the last bit. Sixteen tokens by
// sixteen rows by 64 columns are one instruction; the sums of a block of 256 columns are stored and scaled by vectors.
#include "cpu/formats_avx512.h"
#include "cpu/tile_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

// The tile registers, by number: sums of sixteen tokens by sixteen rows, [token block][half]; 64 activations of as many
// tokens; 64 columns of sixteen rows.
enum Register { kSums00, kSums01, kSums10, kSums11, kTokens0, kTokens1, kWeights0, kWeights1 };
constexpr int kTileTokens = 16, kTogether = 2 * kTileTokens, kTileColumns = 64;

struct alignas(64) Configuration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {};
  Configuration(int tokens0, int tokens1) {
    const auto a = static_cast<uint8_t>(tokens0), b = static_cast<uint8_t>(tokens1 > 0 ? tokens1 : 1);
    const uint8_t all[] = {a, a, b, b, a, b, 16, 16};
    for (int i = 0; i < 8; ++i) rows[i] = all[i];
  }
};

// GCC 12's own intrinsics do not say which memory they read.
inline void configure(const Configuration& configuration) { asm volatile("ldtilecfg %0" ::"m"(configuration)); }
inline void release() { asm volatile("tilerelease" ::); }
template <int R>
inline void load(const void* from, size_t stride) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(R), "r"(from), "r"(stride) : "memory");
}
template <int R>
inline void store(void* to, size_t stride) {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(R), "r"(to), "r"(stride) : "memory");
}
template <int R>
inline void clear() {
  asm volatile("tilezero %%tmm%c0" ::"i"(R));
}
// Signed activations times unsigned weights.
template <int C, int A, int B>
inline void add_products() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}

// Sums of up to 32 tokens and 32 rows.
struct alignas(64) Dots {
  int32_t sum[kTogether][kTileRows];
};

// Sixteen tokens' next 64 columns. A tile's load waits for all its lines, and nothing else fetches them ahead.
inline void fetch(const int8_t* x, size_t pitch) {
#pragma GCC unroll 16
  for (int t = 0; t < kTileTokens; ++t) _mm_prefetch(x + static_cast<size_t>(t) * pitch, _MM_HINT_T0);
}

// Up to sixteen tokens, or with `Two` up to 32, times one block of `columns` columns; x are the tokens' quants, `pitch`
// bytes apart. What lies behind the last column meets activations of zero. The tokens that follow are fetched
// meanwhile.
template <bool Two>
void products(const uint8_t (*w)[2][64], int columns, const int8_t* x, size_t pitch, Dots& dots) {
  constexpr size_t kWeightStride = sizeof w[0], kSumStride = sizeof dots.sum[0];
  clear<kSums00>();
  clear<kSums01>();
  if (Two) {
    clear<kSums10>();
    clear<kSums11>();
  }
  for (int k = 0; k < columns; k += kTileColumns) {
    load<kWeights0>(w[k / 4][0], kWeightStride);
    load<kTokens0>(x + k, pitch);
    fetch(x + kTogether * pitch + k, pitch);
    add_products<kSums00, kTokens0, kWeights0>();
    load<kWeights1>(w[k / 4][1], kWeightStride);
    add_products<kSums01, kTokens0, kWeights1>();
    if (!Two) continue;
    load<kTokens1>(x + kTileTokens * pitch + k, pitch);
    fetch(x + (kTogether + kTileTokens) * pitch + k, pitch);
    add_products<kSums10, kTokens1, kWeights0>();
    add_products<kSums11, kTokens1, kWeights1>();
  }
  store<kSums00>(dots.sum[0], kSumStride);
  store<kSums01>(dots.sum[0] + kHalfRows, kSumStride);
  if (Two) {
    store<kSums10>(dots.sum[kTileTokens], kSumStride);
    store<kSums11>(dots.sum[kTileTokens] + kHalfRows, kSumStride);
  }
}

// c [tokens][kTileRows] += dots · scales, or set when `first`.
void scale(const Dots& dots, const float* scales, const ByteBlock* a, size_t pitch, int tokens, float* c, bool first) {
  const __m512 scale0 = _mm512_load_ps(scales), scale1 = _mm512_load_ps(scales + kHalfRows);
  for (int t = 0; t < tokens; ++t, c += kTileRows) {
    const __m512 d = _mm512_set1_ps(a->d);
    const __m512i zero = _mm512_set1_epi32(a->zero);
    const auto add = [&](int at, __m512 s) {
      const __m512i sum = _mm512_add_epi32(_mm512_load_si512(dots.sum[t] + at), zero);
      const __m512 term = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), s);
      _mm512_storeu_ps(c + at, first ? _mm512_mul_ps(term, d) : _mm512_fmadd_ps(term, d, _mm512_loadu_ps(c + at)));
    };
    add(0, scale0);
    add(kHalfRows, scale1);
    a = reinterpret_cast<const ByteBlock*>(reinterpret_cast<const uint8_t*>(a) + pitch);
  }
}

// One block of 256 columns times all tokens.
void multiply_block(const ByteTile* tile, int b, int columns, const uint8_t* x, size_t pitch, int tokens, float* c,
                    bool first) {
  Dots dots;
  const auto* w = tile->q + b * (kBlock / 4);
  for (int t = 0; t < tokens; t += kTogether) {
    const int here = tokens - t < kTogether ? tokens - t : kTogether;
    if (here < kTogether) configure(Configuration(here < kTileTokens ? here : kTileTokens, here - kTileTokens));
    const auto* a = reinterpret_cast<const ByteBlock*>(x + static_cast<size_t>(t) * pitch);
    if (here > kTileTokens) {
      products<true>(w, columns, a->q, pitch, dots);
    } else {
      products<false>(w, columns, a->q, pitch, dots);
    }
    scale(dots, tile->scale[b], a, pitch, here, c + t * kTileRows, first);
  }
}

// The loads of a tile register take tokens that are equally far apart. Asked for every tile: without a way out, so that
// eight tokens are compared at once.
bool equally_far(const void* const* x, int tokens) {
  if (tokens < 2) return true;
  const auto at = [&](int t) { return reinterpret_cast<uintptr_t>(x[t]); };
  const uintptr_t pitch = at(1) - at(0);
  uintptr_t other = 0;
  for (int t = 2; t < tokens; ++t) other |= (at(t) - at(t - 1)) ^ pitch;
  return other == 0 && at(1) > at(0);
}

void multiply(const void* weights, int depth, const void* const* x, size_t offset, int tokens, float* c, bool first) {
  if (!equally_far(x, tokens)) return multiply_bytes(weights, depth, x, offset, tokens, c, first);
  const auto* tile = static_cast<const ByteTile*>(weights);
  const uint8_t* from = static_cast<const uint8_t*>(x[0]) + offset;
  const size_t pitch =
      tokens > 1 ? static_cast<size_t>(static_cast<const uint8_t*>(x[1]) - static_cast<const uint8_t*>(x[0])) : 0;
  for (int b = 0; b * kBlock < depth; ++b) {
    configure(Configuration(kTileTokens, kTileTokens));
    multiply_block(tile, b, depth - b * kBlock < kBlock ? depth - b * kBlock : kBlock,
                   from + static_cast<size_t>(b) * sizeof(ByteBlock), pitch, tokens, c, first && b == 0);
  }
  release();
}

Kernels with_amx(Kernels kernels) {
  kernels.name = "amx";
  for (Format& format : kernels.formats) {
    if (format.multiply == multiply_bytes) format.multiply = multiply;
  }
  return kernels;
}

}  // namespace
}  // namespace doppler::cpu::avx512

namespace doppler::cpu {

const Kernels& amx_kernels() {
  static const Kernels kernels = avx512::with_amx(avx512_kernels());
  return kernels;
}

}  // namespace doppler::cpu
#endif
