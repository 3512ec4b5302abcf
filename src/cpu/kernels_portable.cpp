// The kernels in plain code, for machines without the vector instructions the others need; also the simplest
// statement of what the quantised products are. All quantised formats are brought to one shape: whole numbers with a
// scale and a minimum for each 16. They and the activations are widened to 16 bits, whose products every x86-64 sums in
// pairs.
#include "cpu/code_blocks.h"
#include "cpu/simd_portable.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define DOPPLER_ISA portable
#include "cpu/attention_impl.h"

namespace doppler::cpu {
namespace portable {
namespace {

constexpr int kTileDepth = 256;
constexpr size_t kQ4Bytes = 144, kQ6Bytes = 210, kQ8Bytes = 34, kMxBytes = 17;

struct QuantRow {
  int16_t q[kTileDepth];
  float scale[kTileDepth / 16];
  float min[kTileDepth / 16];
};
struct QuantTile {
  QuantRow rows[kTileRows];
};
static_assert(sizeof(QuantTile) <= kTileBytes);

float half_at(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return f16_value(h);
}

// Block b of a row of k weights.
using RowFn = void (*)(const uint8_t* row, int k, int b, QuantRow& out);

void block_q4_k(const uint8_t* row, int /*k*/, int b, QuantRow& out) {
  const uint8_t* w = row + static_cast<size_t>(b) * kQ4Bytes;
  const float d = half_at(w), dmin = half_at(w + 2);
  const uint8_t* s = w + 4;
  for (int g = 0; g < 8; ++g) {
    const int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
    const int min = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 6) << 4;
    out.scale[2 * g] = out.scale[2 * g + 1] = d * static_cast<float>(scale);
    out.min[2 * g] = out.min[2 * g + 1] = dmin * static_cast<float>(min);
  }
  for (int c = 0; c < 4; ++c) {
    const uint8_t* both = w + 16 + 32 * c;
    int16_t* to = out.q + 64 * c;
    for (int i = 0; i < 32; ++i) to[i] = both[i] & 15;
    for (int i = 0; i < 32; ++i) to[32 + i] = both[i] >> 4;
  }
}

// Groups 4·half + Quarter of 32, from 32 bytes of low nibbles and 32 of upper bit pairs.
template <int Quarter>
void group_q6_k(const uint8_t* low, const uint8_t* high, int16_t* out) {
  for (int i = 0; i < 32; ++i) {
    const int nibble = Quarter < 2 ? low[i] & 15 : low[i] >> 4;
    out[i] = static_cast<int16_t>((nibble | ((high[i] >> (2 * Quarter)) & 3) << 4) - 32);
  }
}

void block_q6_k(const uint8_t* row, int /*k*/, int b, QuantRow& out) {
  const uint8_t* w = row + static_cast<size_t>(b) * kQ6Bytes;
  const float d = half_at(w + 208);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = w + 64 * half;
    const uint8_t* high = w + 128 + 32 * half;
    int16_t* to = out.q + 128 * half;
    group_q6_k<0>(low, high, to);
    group_q6_k<1>(low + 32, high, to + 32);
    group_q6_k<2>(low, high, to + 64);
    group_q6_k<3>(low + 32, high, to + 96);
  }
  for (float& min : out.min) min = 0;
  for (int g = 0; g < 16; ++g) out.scale[g] = d * static_cast<float>(static_cast<int8_t>(w[192 + g]));
}

void block_q8_0(const uint8_t* row, int k, int b, QuantRow& out) {
  const int units = (k + 31) / 32;
  for (int g = 0; g < 8; ++g) {
    const int unit = 8 * b + g;
    const uint8_t* w = row + static_cast<size_t>(unit) * kQ8Bytes;
    out.scale[2 * g] = out.scale[2 * g + 1] = unit < units ? half_at(w) : 0.0f;
    out.min[2 * g] = out.min[2 * g + 1] = 0;
    for (int i = 0; i < 32; ++i) out.q[32 * g + i] = unit < units ? static_cast<int8_t>(w[2 + i]) : int16_t{0};
  }
}

void block_mxfp4(const uint8_t* row, int k, int b, QuantRow& out) {
  static constexpr int8_t kLevels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};  // doubled
  const int units = (k + 31) / 32;
  for (int g = 0; g < 8; ++g) {
    const bool there = 8 * b + g < units;
    const uint8_t* w = row + static_cast<size_t>(8 * b + g) * kMxBytes;
    const uint32_t e = there ? w[0] : 0;
    out.scale[2 * g] = out.scale[2 * g + 1] = there ? from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23) : 0.0f;
    out.min[2 * g] = out.min[2 * g + 1] = 0;
    for (int i = 0; i < 16; ++i) {
      out.q[32 * g + i] = there ? kLevels[w[1 + i] & 15] : int8_t{0};
      out.q[32 * g + 16 + i] = there ? kLevels[w[1 + i] >> 4] : int8_t{0};
    }
  }
}

// The codes of group g of a block (code_blocks.h).
template <int Bits, bool Min, bool Levels>
void codes(CodesOf32<Bits, Min, Levels>, const uint8_t* block, int /*g*/, uint8_t* out) {
  using T = CodesOf32<Bits, Min, Levels>;
  const uint8_t* both = block + T::kCodes;
  for (int i = 0; i < 16; ++i) out[i] = both[i] & 15;
  for (int i = 0; i < 16; ++i) out[16 + i] = both[i] >> 4;
  if (Bits < 5) return;
  const uint32_t bits = word_at(block + T::kHighBits);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<uint8_t>(out[i] | (bits >> i & 1) << 4);
}
void codes(CodesQ5_K, const uint8_t* block, int g, uint8_t* out) {
  const uint8_t *both = block + 48 + g / 2 * 32, *bits = block + 16;
  for (int i = 0; i < 32; ++i) out[i] = static_cast<uint8_t>((both[i] >> g % 2 * 4 & 15) | (bits[i] >> g & 1) << 4);
}
void codes(CodesQ3_K, const uint8_t* block, int g, uint8_t* out) {
  const uint8_t* pairs = block + 32 + g / 4 * 32;
  for (int i = 0; i < 32; ++i) out[i] = static_cast<uint8_t>((pairs[i] >> g % 4 * 2 & 3) | (block[i] >> g & 1) << 2);
}
void codes(CodesQ2_K, const uint8_t* block, int g, uint8_t* out) {
  const uint8_t* pairs = block + 16 + g / 4 * 32;
  for (int i = 0; i < 32; ++i) out[i] = pairs[i] >> g % 4 * 2 & 3;
}
void codes(CodesIQ4_XS, const uint8_t* block, int g, uint8_t* out) {
  codes(CodesIQ4_NL{}, block + 8 + 16 * g - CodesIQ4_NL::kCodes, 0, out);
}

template <class T>
void block_codes(const uint8_t* row, int k, int b, QuantRow& out) {
  const uint8_t* block = row + static_cast<size_t>(b) * kCodeBytes<T>;
  CodeNumbers numbers;
  if constexpr (T::kColumns == kBlock) numbers = T::numbers(block);
  for (int part = 0; part < 16; ++part) {
    const bool there = T::kColumns == kBlock || b * kBlock + part * 16 < k;
    const uint8_t* w = T::kColumns == kBlock ? block : block + static_cast<size_t>(part / 2) * T::kBytes;
    float scale = there ? half_at(w + T::kD) : 0.0f, min = there && T::kMin ? half_at(w + T::kDmin) : 0.0f;
    if constexpr (T::kColumns == kBlock) {
      const int i = part * 16 / T::kPart;
      scale *= static_cast<float>(numbers.scale[i] - T::kScaleZero);
      if (T::kMin) min *= static_cast<float>(numbers.min[i]);
    } else {
      min = -min;
    }
    out.scale[part] = scale;
    out.min[part] = min;
  }
  for (int g = 0; g < 8; ++g) {
    uint8_t q[kGroup] = {};
    const size_t at = T::kColumns == kBlock ? 0 : static_cast<size_t>(g) * T::kBytes;
    if (T::kColumns == kBlock || b * kBlock + g * kGroup < k) codes(T{}, block + at, g, q);
    for (int i = 0; i < kGroup; ++i) {
      out.q[g * kGroup + i] = static_cast<int16_t>(T::kLevels ? kIq4Levels[q[i]] : q[i] - T::kZero);
    }
  }
}

// A block of activations in the order of the columns.
struct XBlock {
  int16_t q[kBlock];
  float d[kBlock / kGroup];
  float ds[kBlock / 16];  // d · Σq over 16; of no use to the formats that read 15 bits, which have no minimum

  explicit XBlock(const ActBlock& a) {
    fill(a, [&](int i) { return a.q[i]; });
    for (int i = 0; i < kBlock / 16; ++i) ds[i] = a.d[i / 2] * (static_cast<float>(a.zero16[i]) / -32);
  }
  explicit XBlock(const WideBlock& a) : ds{} {
    fill(a, [&](int i) { return static_cast<int16_t>(a.high[i] * 128 + a.low[i]); });
  }
  template <class Block, class Quant>
  void fill(const Block& a, Quant&& quant) {
    for (int g = 0; g < kBlock / kGroup; ++g) {
      for (int i = 0; i < kGroup; ++i) q[g * kGroup + i] = quant(group_offset(g) + i);
      d[g] = a.d[g];
    }
  }
};

// Σ q·x of the sixteen groups of 16. Compilers unroll this into scalar code, so SSE2, which every x86-64 has, is told.
void sum_groups(const int16_t* q, const int16_t* x, int32_t* sums) {
#if defined(__SSE2__)
  const auto pairs = [&](int i) {
    return _mm_madd_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(q + i)),
                          _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i)));
  };
  for (int g = 0; g < 16; g += 4) {
    __m128i v[4];
    for (int i = 0; i < 4; ++i) v[i] = _mm_add_epi32(pairs((g + i) * 16), pairs((g + i) * 16 + 8));
    const __m128i a = _mm_add_epi32(_mm_unpacklo_epi32(v[0], v[1]), _mm_unpackhi_epi32(v[0], v[1]));
    const __m128i b = _mm_add_epi32(_mm_unpacklo_epi32(v[2], v[3]), _mm_unpackhi_epi32(v[2], v[3]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(sums + g),
                     _mm_add_epi32(_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b)));
  }
#else
  for (int g = 0; g < 16; ++g) {
    sums[g] = 0;
    for (int i = 0; i < 16; ++i) sums[g] += q[g * 16 + i] * x[g * 16 + i];
  }
#endif
}

// Terms are added in the order of the columns, then blocks likewise, for one token as for many.
float block_sum(const QuantRow& w, const XBlock& x) {
  int32_t sums[kBlock / 16];
  sum_groups(w.q, x.q, sums);
  float terms[kBlock / kGroup];
  for (int g = 0; g < kBlock / kGroup; ++g) {
    const float low = w.scale[2 * g] * static_cast<float>(sums[2 * g]);
    const float high = w.scale[2 * g + 1] * static_cast<float>(sums[2 * g + 1]);
    terms[g] = x.d[g] * (low + high) - (w.min[2 * g] * x.ds[2 * g] + w.min[2 * g + 1] * x.ds[2 * g + 1]);
  }
  float sum = 0;
  for (const float term : terms) sum += term;
  return sum;
}

template <RowFn Block, class X>
void dot_quant(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  for (int r = 0; r < rows; ++r) out[r] = 0;
  for (int b = 0; b * kBlock < k; ++b) {
    const XBlock a(static_cast<const X*>(x)[b]);
    for (int r = 0; r < rows; ++r) {
      QuantRow w;
      Block(static_cast<const uint8_t*>(weights) + static_cast<size_t>(r) * stride, k, b, w);
      out[r] += block_sum(w, a);
    }
  }
}

template <RowFn Block>
void unpack_quant(const void* weights, size_t stride, int rows, int k, int k0, int /*depth*/, void* tile) {
  for (int r = 0; r < rows; ++r) {
    const uint8_t* row = static_cast<const uint8_t*>(weights) + static_cast<size_t>(r) * stride;
    Block(row, k, k0 / kBlock, static_cast<QuantTile*>(tile)->rows[r]);
  }
  for (int r = rows; r < kTileRows; ++r) static_cast<QuantTile*>(tile)->rows[r] = {};
}

template <class X>
void multiply_quant(const void* tile, int /*depth*/, const void* const* x, size_t offset, int tokens, float* c,
                    bool first) {
  for (int t = 0; t < tokens; ++t) {
    const XBlock a(*reinterpret_cast<const X*>(static_cast<const uint8_t*>(x[t]) + offset));
    for (int r = 0; r < kTileRows; ++r) {
      float& to = c[t * kTileRows + r];
      to = (first ? 0.0f : to) + block_sum(static_cast<const QuantTile*>(tile)->rows[r], a);
    }
  }
}

template <class T>
constexpr Format kCodeFormat{.dot = dot_quant<block_codes<T>, ActBlock>,
                             .unpack = unpack_quant<block_codes<T>>,
                             .multiply = multiply_quant<ActBlock>,
                             .depth = kTileDepth,
                             .input = Input::kInt8};

float value_f32(const uint8_t* row, int i) {
  float f;
  std::memcpy(&f, row + static_cast<size_t>(i) * 4, 4);
  return f;
}
float value_f16(const uint8_t* row, int i) { return half_at(row + static_cast<size_t>(i) * 2); }
float value_bf16(const uint8_t* row, int i) {
  uint16_t h;
  std::memcpy(&h, row + static_cast<size_t>(i) * 2, 2);
  return from_bits(static_cast<uint32_t>(h) << 16);
}
using ValueFn = float (*)(const uint8_t* row, int i);

// Eight sums side by side, which the compiler may keep in vectors.
template <class Weight>
float dot_floats(const float* x, int k, Weight&& w) {
  float sum[kLanes] = {};
  int i = 0;
  for (; i + kLanes <= k; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) sum[j] += w(i + j) * x[i + j];
  }
  for (; i < k; ++i) sum[0] += w(i) * x[i];
  return sum_lanes(load(sum));
}

template <ValueFn Value>
void dot_float(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  for (int r = 0; r < rows; ++r) {
    const uint8_t* row = static_cast<const uint8_t*>(weights) + static_cast<size_t>(r) * stride;
    out[r] = dot_floats(static_cast<const float*>(x), k, [&](int i) { return Value(row, i); });
  }
}

void ref_rows(const void* weights, size_t stride, int rows, int /*k*/, int /*k0*/, int /*depth*/, void* tile) {
  *static_cast<RowsRef*>(tile) = {weights, stride, rows};
}

template <ValueFn Value>
void multiply_float(const void* tile, int k, const void* const* x, size_t /*offset*/, int tokens, float* c,
                    bool /*first*/) {
  const RowsRef& note = *static_cast<const RowsRef*>(tile);
  for (int t = 0; t < tokens; ++t) dot_float<Value>(note.weights, note.stride, note.rows, x[t], k, c + t * kTileRows);
}

uint64_t stream(const void* data, size_t bytes) {
  const uint8_t* p = static_cast<const uint8_t*>(data);
  uint64_t sum[4] = {};
  for (; bytes >= 32; bytes -= 32, p += 32) {
    uint64_t v[4];
    std::memcpy(v, p, 32);
    for (int i = 0; i < 4; ++i) sum[i] += v[i];
  }
  return sum[0] + sum[1] + sum[2] + sum[3];
}

}  // namespace
}  // namespace portable

using namespace portable;

const Kernels kPortableKernels = {
    .name = "portable",
    .formats = {{dot_float<value_f32>, ref_rows, multiply_float<value_f32>, kWholeRow, Input::kF32},
                {dot_float<value_f16>, ref_rows, multiply_float<value_f16>, kWholeRow, Input::kF32},
                {dot_float<value_bf16>, ref_rows, multiply_float<value_bf16>, kWholeRow, Input::kF32},
                {dot_quant<block_q8_0, WideBlock>, unpack_quant<block_q8_0>, multiply_quant<WideBlock>, kTileDepth,
                 Input::kInt15},
                {dot_quant<block_q4_k, ActBlock>, unpack_quant<block_q4_k>, multiply_quant<ActBlock>, kTileDepth,
                 Input::kInt8},
                {dot_quant<block_q6_k, ActBlock>, unpack_quant<block_q6_k>, multiply_quant<ActBlock>, kTileDepth,
                 Input::kInt8},
                {dot_quant<block_mxfp4, WideBlock>, unpack_quant<block_mxfp4>, multiply_quant<WideBlock>, kTileDepth,
                 Input::kInt15},
                kCodeFormat<CodesQ4_0>,
                kCodeFormat<CodesQ4_1>,
                kCodeFormat<CodesQ5_0>,
                kCodeFormat<CodesQ5_1>,
                kCodeFormat<CodesQ2_K>,
                kCodeFormat<CodesQ3_K>,
                kCodeFormat<CodesQ5_K>,
                kCodeFormat<CodesIQ4_NL>,
                kCodeFormat<CodesIQ4_XS>},
    .norm = norm,
    .add = add_rows,
    .softcap = softcap,
    .rope = rope,
    .glu = glu,
    .glu_interleaved = glu_interleaved,
    .axpy = axpy,
    .exp = exp_row,
    .convolve = convolve,
    .delta_step = delta_step,
    .quantize = quantize,
    .quantize_wide = quantize_wide,
    .quantize_group = quantize_group,
    .quantize_wide_group = quantize_wide_group,
    .to_i16 = to_i16,
    .attend = attend,
    .merge = merge,
    .stream = stream,
};

}  // namespace doppler::cpu
