#include "format/decode.h"

#include <cstring>

#include "base/error.h"
#include "format/decode_blocks.h"

namespace doppler {
namespace {

void decode_f32(const uint8_t* bytes, float* out, size_t n) { std::memcpy(out, bytes, n * sizeof(float)); }

typedef uint16_t Half8 __attribute__((vector_size(16)));
typedef uint32_t Bits8 __attribute__((vector_size(32)));
typedef float Float8 __attribute__((vector_size(32)));

// f16_to_f32 of eight at once. Moving the exponent's bias by a multiplication also normalises subnormals; infinity and
// NaN need their exponent filled up.
void decode_f16(const uint8_t* bytes, float* out, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    Half8 h;
    std::memcpy(&h, bytes + 2 * i, sizeof h);
    const Bits8 wide = __builtin_convertvector(h, Bits8);
    const Float8 scaled = reinterpret_cast<Float8>((wide & 0x7fffu) << 13) * 0x1p112f;
    const Bits8 special = -(((wide & 0x7c00u) + 0x400u) >> 15) & 0x7f800000u;  // the sum carries from exponent 31 only
    const Bits8 result = reinterpret_cast<Bits8>(scaled) | special | (wide & 0x8000u) << 16;
    std::memcpy(out + i, &result, sizeof result);
  }
  for (; i < n; ++i) out[i] = f16_to_f32(load_u16(bytes + 2 * i));
}

void decode_bf16(const uint8_t* __restrict bytes, float* __restrict out, size_t n) {
  constexpr size_t kStep = 32;  // a constant count of iterations is what the compiler vectorises
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    uint16_t h[kStep];
    std::memcpy(h, bytes + 2 * i, sizeof h);
    for (size_t j = 0; j < kStep; ++j) out[i + j] = bf16_to_f32(h[j]);
  }
  for (; i < n; ++i) out[i] = bf16_to_f32(load_u16(bytes + 2 * i));
}

// d, int8 q[32]
inline void decode_q8_0(const uint8_t* __restrict block, float* __restrict out) {
  const float d = load_f16(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

// d, nibbles[16]: the low ones are weights 0 … 15, the high ones 16 … 31 (so in all types of 32 weights)
inline void decode_q4_0(const uint8_t* __restrict block, float* __restrict out) {
  const float d = load_f16(block);
  for (int i = 0; i < 16; ++i) out[i] = d * static_cast<float>((block[2 + i] & 15) - 8);
  for (int i = 0; i < 16; ++i) out[16 + i] = d * static_cast<float>((block[2 + i] >> 4) - 8);
}

// d, minimum, nibbles[16]
inline void decode_q4_1(const uint8_t* __restrict block, float* __restrict out) {
  const float d = load_f16(block), min = load_f16(block + 2);
  for (int i = 0; i < 16; ++i) out[i] = d * static_cast<float>(block[4 + i] & 15) + min;
  for (int i = 0; i < 16; ++i) out[16 + i] = d * static_cast<float>(block[4 + i] >> 4) + min;
}

// d, fifth bits (bit i for weight i), nibbles[16]
inline void decode_q5_0(const uint8_t* __restrict block, float* __restrict out) {
  const float d = load_f16(block);
  const uint32_t high = load_u32(block + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(((block[6 + i] & 15) | static_cast<int>(high >> i & 1) << 4) - 16);
    out[16 + i] = d * static_cast<float>(((block[6 + i] >> 4) | static_cast<int>(high >> (16 + i) & 1) << 4) - 16);
  }
}

// d, minimum, fifth bits, nibbles[16]
inline void decode_q5_1(const uint8_t* __restrict block, float* __restrict out) {
  const float d = load_f16(block), min = load_f16(block + 2);
  const uint32_t high = load_u32(block + 4);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((block[8 + i] & 15) | static_cast<int>(high >> i & 1) << 4) + min;
    out[16 + i] = d * static_cast<float>((block[8 + i] >> 4) | static_cast<int>(high >> (16 + i) & 1) << 4) + min;
  }
}

// e8m0 scale, nibbles[16] of e2m1. The levels are doubled to be integers, so the scale is 2^(e - 128).
inline void decode_mxfp4(const uint8_t* __restrict block, float* __restrict out) {
  static constexpr int8_t kLevels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const uint32_t e = block[0];
  const float d = std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);  // subnormal below 2^-126
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kLevels[block[1 + i] & 15]);
    out[16 + i] = d * static_cast<float>(kLevels[block[1 + i] >> 4]);
  }
}

BlocksDecoder find_decoder(DType type) {
  switch (type) {
    case DType::kF32: return decode_f32;
    case DType::kF16: return decode_f16;
    case DType::kBF16: return decode_bf16;
    case DType::kQ8_0: return decode_blocks<32, 34, decode_q8_0>;
    case DType::kQ4_0: return decode_blocks<32, 18, decode_q4_0>;
    case DType::kQ4_1: return decode_blocks<32, 20, decode_q4_1>;
    case DType::kQ5_0: return decode_blocks<32, 22, decode_q5_0>;
    case DType::kQ5_1: return decode_blocks<32, 24, decode_q5_1>;
    case DType::kMXFP4: return decode_blocks<32, 17, decode_mxfp4>;
    default: break;
  }
  const BlocksDecoder k = find_k_decoder(type);
  return k != nullptr ? k : find_iq_decoder(type);
}

}  // namespace

void decode_row(DType type, const std::byte* row, float* out, size_t cols) {
  const DTypeInfo& t = info(type);
  const BlocksDecoder decode = find_decoder(type);
  if (decode == nullptr)
    fail({.code = ErrorCode::kInternal, .what = "no decoder for a number format", .where = std::string(t.name)});
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(row);
  const size_t weights = static_cast<size_t>(t.block_weights), whole = cols / weights, rest = cols % weights;
  decode(bytes, out, whole);
  if (rest != 0) {
    float last[256];
    decode(bytes + whole * static_cast<size_t>(t.block_bytes), last, 1);
    std::memcpy(out + whole * weights, last, rest * sizeof(float));
  }
}

bool all_finite(const float* values, size_t count) {
  // Infinity and NaN have all bits of the exponent set; the next addition carries into the sign.
  constexpr size_t kStep = 64;
  size_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    uint32_t bits[kStep];
    std::memcpy(bits, values + i, sizeof bits);
    uint32_t carry = 0;
    for (size_t j = 0; j < kStep; ++j) carry |= (bits[j] & 0x7fffffffu) + 0x00800000u;
    if ((carry & 0x80000000u) != 0) return false;
  }
  for (; i < count; ++i) {
    if ((std::bit_cast<uint32_t>(values[i]) & 0x7f800000u) == 0x7f800000u) return false;
  }
  return true;
}

bool repack_mxfp4_hf(const std::byte* blocks, const std::byte* scales, std::byte* out, size_t n_blocks) {
  constexpr std::byte kLow{0x0f}, kHigh{0xf0};
  constexpr std::byte kLargestScale{252};  // 6 · 2^(252 − 127) is the largest product below infinity
  bool finite = true;
  for (size_t b = 0; b < n_blocks; ++b, blocks += 16, out += 17) {
    out[0] = scales[b];
    finite &= scales[b] <= kLargestScale;
    for (size_t i = 0; i < 8; ++i) {  // bytes i and 8 + i hold elements 2i, 2i + 1 and 16 + 2i, 17 + 2i
      const std::byte first = blocks[i], second = blocks[8 + i];
      out[1 + 2 * i] = (first & kLow) | (second & kLow) << 4;
      out[2 + 2 * i] = first >> 4 | (second & kHigh);
    }
  }
  return finite;
}

}  // namespace doppler
