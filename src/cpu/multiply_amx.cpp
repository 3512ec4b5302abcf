#if defined(__x86_64__)
// Tiles of Q4_K and Q6_K times many tokens with AMX: sixteen tokens by sixteen rows in one instruction for each group
// of columns that shares a scale. The integers leave the tile registers by way of the cache; scales are applied to them
// with the same operations in the same order as in multiply_avx512.cpp, so both give the same bits.
#include "cpu/formats_avx512.h"
#include "cpu/strips_avx512.h"
#include "cpu/tile_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

constexpr int kTokens = 16;

// The tile registers, by number. C is sixteen tokens of sixteen sums; A sixteen tokens of 32 or 16 activations; B as
// many columns of sixteen weight rows, four columns a row of the tile.
enum Register { kSums0, kSums1, kTokens32, kWeights32, kTokens16, kWeights16 };

struct alignas(64) Configuration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 32, 64, 16, 64};
  uint8_t rows[16] = {16, 16, 16, 8, 16, 4};
};
constexpr Configuration kConfiguration;

// GCC 12's own intrinsics do not say which memory they read.
inline void configure() { asm volatile("ldtilecfg %0" ::"m"(kConfiguration)); }
inline void release() { asm volatile("tilerelease" ::); }
template <int R>
inline void load(const void* from, size_t stride) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(R), "r"(from), "r"(stride) : "memory");
}
template <int R>
inline void store(void* to, size_t stride) {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(R), "r"(to), "r"(stride) : "memory");
}
// Signed activations times unsigned weights.
template <int C, int A, int B>
inline void set_products() {
  asm volatile("tilezero %%tmm%c0\n\ttdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}

using Sums = int32_t[kTokens][16];

// The activations of sixteen tokens, `pitch` bytes apart.
struct SixteenTokens {
  const uint8_t* first;
  size_t pitch;
  const ActBlock* block(int b) const { return reinterpret_cast<const ActBlock*>(first) + b; }
};
inline const ActBlock* next(const ActBlock* block, size_t pitch) {
  return reinterpret_cast<const ActBlock*>(reinterpret_cast<const uint8_t*>(block) + pitch);
}

struct Min {
  static constexpr int kColumns = 32;
  template <int C>
  static void products(const QuantTile* tile, int group, int half, const SixteenTokens& x, int32_t (*sums)[16]) {
    load<kWeights32>(tile->q[group * 8][half], sizeof tile->q[0]);
    load<kTokens32>(x.block(group / kBlockGroups)->q + group_offset(group % kBlockGroups), x.pitch);
    set_products<C, kTokens32, kWeights32>();
    store<C>(sums, sizeof sums[0]);
  }
  static void add(const QuantTile* tile, int group, int half, const SixteenTokens& x, const int32_t (*sums)[16],
                  __m512* total) {
    const int g = group % kBlockGroups;
    const __m512 scale = _mm512_load_ps(tile->scale[group] + 16 * half);
    const __m512 min = _mm512_load_ps(tile->min[group] + 16 * half);
    const ActBlock* a = x.block(group / kBlockGroups);
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t, a = next(a, x.pitch)) {
      total[t] = take_min(add_scaled(total[t], _mm512_load_si512(sums[t]), scale, a->d[g]), min, a->ds[g]);
    }
  }
};

struct Centred {
  static constexpr int kColumns = 16;
  template <int C>
  static void products(const QuantTile* tile, int group, int half, const SixteenTokens& x, int32_t (*sums)[16]) {
    const int g = group % (2 * kBlockGroups);
    load<kWeights16>(tile->q[group * 4][half], sizeof tile->q[0]);
    load<kTokens16>(x.block(group / (2 * kBlockGroups))->q + group_offset(g / 2) + g % 2 * 16, x.pitch);
    set_products<C, kTokens16, kWeights16>();
    store<C>(sums, sizeof sums[0]);
  }
  static void add(const QuantTile* tile, int group, int half, const SixteenTokens& x, const int32_t (*sums)[16],
                  __m512* total) {
    const int g = group % (2 * kBlockGroups);
    const __m512 scale = _mm512_load_ps(tile->scale[group] + 16 * half);
    const ActBlock* a = x.block(group / (2 * kBlockGroups));
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t, a = next(a, x.pitch)) {
      const __m512i dot = _mm512_add_epi32(_mm512_load_si512(sums[t]), _mm512_set1_epi32(a->zero16[g]));
      total[t] = add_scaled(total[t], dot, scale, a->d[g / 2]);
    }
  }
};

// One half of a tile times sixteen tokens. The products of a group are under way while the one before is scaled.
template <class Kind>
void multiply_sixteen(const QuantTile* tile, int depth, int half, const SixteenTokens& x, float* c, bool first) {
  alignas(64) Sums sums[2];
  __m512 total[kTokens];
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) total[t] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(c + t * kTileRows);
  const int groups = depth / Kind::kColumns;
  Kind::template products<kSums0>(tile, 0, half, x, sums[0]);
  int group = 0;
  for (; group + 2 < groups; group += 2) {
    Kind::template products<kSums1>(tile, group + 1, half, x, sums[1]);
    Kind::add(tile, group, half, x, sums[0], total);
    Kind::template products<kSums0>(tile, group + 2, half, x, sums[0]);
    Kind::add(tile, group + 1, half, x, sums[1], total);
  }
  if (group + 1 < groups) Kind::template products<kSums1>(tile, group + 1, half, x, sums[1]);
  Kind::add(tile, group, half, x, sums[0], total);
  if (group + 1 < groups) Kind::add(tile, group + 1, half, x, sums[1], total);
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) _mm512_storeu_ps(c + t * kTileRows, total[t]);
}

// Tokens that AMX can take at once: whole sixteens, if all lie equally far apart.
int regular_tokens(const void* const* x, int tokens, size_t& pitch) {
  if (tokens < kTokens) return 0;
  const uint8_t* const* p = reinterpret_cast<const uint8_t* const*>(x);
  pitch = static_cast<size_t>(p[1] - p[0]);
  for (int t = 2; t < tokens; ++t) {
    if (static_cast<size_t>(p[t] - p[t - 1]) != pitch) return 0;
  }
  return tokens / kTokens * kTokens;
}

template <class Kind>
void multiply(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c, bool first,
              MultiplyFn rest) {
  size_t pitch = 0;
  const int regular = regular_tokens(x, tokens, pitch);
  if (regular > 0) configure();
  for (int t = 0; t < regular; t += kTokens) {
    const SixteenTokens some{static_cast<const uint8_t*>(x[t]) + offset, pitch};
    for (int half = 0; half < 2; ++half) {
      multiply_sixteen<Kind>(static_cast<const QuantTile*>(tile), depth, half, some, c + t * kTileRows + 16 * half,
                             first);
    }
  }
  if (regular > 0) release();
  if (regular < tokens) rest(tile, depth, x + regular, offset, tokens - regular, c + regular * kTileRows, first);
}

void multiply_min_amx(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c,
                      bool first) {
  multiply<Min>(tile, depth, x, offset, tokens, c, first, multiply_min);
}

void multiply_centred_amx(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c,
                          bool first) {
  multiply<Centred>(tile, depth, x, offset, tokens, c, first, multiply_centred);
}

Kernels with_amx(Kernels kernels) {
  kernels.name = "amx";
  kernels.formats[kFormatQ4_K].multiply = multiply_min_amx;
  kernels.formats[kFormatQ6_K].multiply = multiply_centred_amx;
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
