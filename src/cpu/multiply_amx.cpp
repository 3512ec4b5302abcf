#if defined(__x86_64__)
// Tiles of Q4_K and Q6_K times many tokens with AMX, in bfloat16. The tile registers then hold sums over all columns:
// with 8-bit tiles every 32 columns have scales of their own, and bringing the integers out of the registers for them
// took twice the time of the products (see bench/results/cpu-notes.md). It is also the more exact: a weight or an
// activation is rounded by at most 2^-8 of itself, where 8 bits have steps of 1/127 of the largest of 32 activations.
#include "cpu/formats_avx512.h"
#include "cpu/strips_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

// Weights of 32 rows as the products read them: [group of 32 columns][half][two columns][row][column].
struct alignas(64) BFloatTile {
  static constexpr int kDepth = 512;
  uint16_t w[kDepth / kGroup][2][16][kStripRows][2];
};
static_assert(sizeof(BFloatTile) <= kTileBytes);

// The tile registers, by number: sums of up to sixteen tokens by sixteen rows, [token block][half]; 32 activations of
// as many tokens; 32 columns of sixteen rows.
enum Register { kSums00, kSums01, kSums10, kSums11, kTokens0, kTokens1, kWeights0, kWeights1 };

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
template <int C, int A, int B>
inline void add_products() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}

// The sums of one register: rows of c, kTileRows floats apart.
constexpr size_t kSumStride = kTileRows * sizeof(float);
template <int R>
inline void begin(const float* c, bool first) {
  if (first) {
    clear<R>();
  } else {
    load<R>(c, kSumStride);
  }
}

// Up to sixteen tokens, or with `Two` up to 32, times 32 rows; x are their activations, `pitch` bytes apart.
template <bool Two>
void multiply_tokens(const BFloatTile* tile, int depth, const uint8_t* x, size_t pitch, float* c, bool first) {
  constexpr int kSecond = 16 * kTileRows;
  begin<kSums00>(c, first);
  begin<kSums01>(c + kStripRows, first);
  if (Two) {
    begin<kSums10>(c + kSecond, first);
    begin<kSums11>(c + kSecond + kStripRows, first);
  }
  for (int group = 0; group < depth / kGroup; ++group, x += kGroup * sizeof(uint16_t)) {
    load<kWeights0>(tile->w[group][0], sizeof tile->w[0][0][0]);
    load<kTokens0>(x, pitch);
    add_products<kSums00, kTokens0, kWeights0>();
    load<kWeights1>(tile->w[group][1], sizeof tile->w[0][0][0]);
    add_products<kSums01, kTokens0, kWeights1>();
    if (!Two) continue;
    load<kTokens1>(x + 16 * pitch, pitch);
    add_products<kSums10, kTokens1, kWeights0>();
    add_products<kSums11, kTokens1, kWeights1>();
  }
  store<kSums00>(c, kSumStride);
  store<kSums01>(c + kStripRows, kSumStride);
  if (Two) {
    store<kSums10>(c + kSecond, kSumStride);
    store<kSums11>(c + kSecond + kStripRows, kSumStride);
  }
}

void multiply(const void* weights, int depth, const void* const* x, size_t offset, int tokens, float* c, bool first) {
  const auto* tile = static_cast<const BFloatTile*>(weights);
  const uint8_t* from = static_cast<const uint8_t*>(x[0]) + offset;
  const size_t pitch =
      tokens > 1 ? static_cast<size_t>(static_cast<const uint8_t*>(x[1]) - static_cast<const uint8_t*>(x[0])) : 0;
  const auto at = [&](int t) { return from + static_cast<size_t>(t) * pitch; };
  int t = 0;
  if (tokens >= 32) configure(Configuration(16, 16));
  for (; t + 32 <= tokens; t += 32) multiply_tokens<true>(tile, depth, at(t), pitch, c + t * kTileRows, first);
  if (const int left = tokens - t; left > 16) {
    configure(Configuration(16, left - 16));
    multiply_tokens<true>(tile, depth, at(t), pitch, c + t * kTileRows, first);
  } else if (left > 0) {
    configure(Configuration(left, 0));
    multiply_tokens<false>(tile, depth, at(t), pitch, c + t * kTileRows, first);
  }
  release();
}

// Four columns of sixteen rows: q · scale − min, as two rows of the tile.
inline void place(__m512i quants, __m512 scale, __m512 min, uint16_t (*to)[kStripRows][2]) {
  const __m512i byte = _mm512_set1_epi32(255);
  const auto column = [&](__m512i q) { return _mm512_fmsub_ps(_mm512_cvtepi32_ps(q), scale, min); };
  const __m512 c0 = column(_mm512_and_si512(quants, byte));
  const __m512 c1 = column(_mm512_and_si512(_mm512_srli_epi32(quants, 8), byte));
  const __m512 c2 = column(_mm512_and_si512(_mm512_srli_epi32(quants, 16), byte));
  const __m512 c3 = column(_mm512_srli_epi32(quants, 24));
  const __m512i together = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                            21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const auto pair = [&](__m512 even, __m512 odd) {
    return _mm512_permutexvar_epi16(together, (__m512i)_mm512_cvtne2ps_pbh(odd, even));
  };
  _mm512_store_si512(to[0], pair(c0, c1));
  _mm512_store_si512(to[1], pair(c2, c3));
}

void unpack_q4(const void* strips, int rows, int cols, int k0, int depth, void* to) {
  auto* tile = static_cast<BFloatTile*>(to);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* strip = strip_of(strips, rows, half, strip_q4_k(cols)) + Q4Strip::at(k0);
    each_q4_group(strip, depth / kGroup, [&](int g, __m512 scale, __m512 min, const uint8_t* quants) {
#pragma GCC unroll 8
      for (int s = 0; s < 8; ++s) place(q4_columns(quants, s), scale, min, tile->w[g][half] + 2 * s);
    });
  }
}

void unpack_q6(const void* strips, int rows, int cols, int k0, int depth, void* to) {
  auto* tile = static_cast<BFloatTile*>(to);
  const __m512 zero_point = _mm512_set1_ps(32);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* strip = strip_of(strips, rows, half, strip_q6_k(cols)) + Q6Strip::at(k0);
    each_q6_group(strip, depth / kGroup, [&](int g, __m512 first, __m512 second, const uint8_t* quants) {
#pragma GCC unroll 8
      for (int s = 0; s < 8; ++s) {
        const __m512 scale = s < 4 ? first : second;
        place(q6_columns(quants, s), scale, _mm512_mul_ps(scale, zero_point), tile->w[g][half] + 2 * s);
      }
    });
  }
}

void to_bf16(const float* x, int n, uint16_t* out) {
  const int all = (n + kGroup - 1) / kGroup * kGroup;
  for (int i = 0; i < all; i += 16) {
    const int here = n - i < 16 ? (n > i ? n - i : 0) : 16;
    const __m512 v = _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << here) - 1u), x + i);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), (__m256i)_mm512_cvtneps_pbh(v));
  }
}

constexpr Packing kPackQ4_K{strip_q4_k, pack_q4_k, few_q4_k, unpack_q4, row_q4_k};
constexpr Packing kPackQ6_K{strip_q6_k, pack_q6_k, few_q6_k, unpack_q6, row_q6_k};

Kernels with_amx(Kernels kernels) {
  kernels.name = "amx";
  kernels.to_bf16 = to_bf16;
  const auto use = [&](FormatId id, const Packing& packing) {
    kernels.formats[id] = {.multiply = multiply,
                           .depth = BFloatTile::kDepth,
                           .input = Input::kInt8OrBF16,
                           .packing = &packing,
                           .gathered = &kAvx512Kernels.formats[id]};
  };
  use(kFormatQ4_K, kPackQ4_K);
  use(kFormatQ6_K, kPackQ6_K);
  return kernels;
}

}  // namespace
}  // namespace doppler::cpu::avx512

namespace doppler::cpu {

const Kernels& amx_kernels() {
  static const Kernels kernels = avx512::with_amx(kAvx512Kernels);
  return kernels;
}

}  // namespace doppler::cpu
#endif
