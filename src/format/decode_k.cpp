// The K types: 256 weights per block, in sub-blocks of 16 or 32 whose scales are themselves quantised.
#include "format/decode_blocks.h"

namespace doppler {
namespace {

// The eight 6-bit scales and minima of Q4_K and Q5_K, packed into twelve bytes.
struct ScalesAndMins {
  uint8_t scale[8], min[8];
};

inline ScalesAndMins unpack_scales(const uint8_t* packed) {
  ScalesAndMins s;
  for (int j = 0; j < 4; ++j) {
    s.scale[j] = packed[j] & 63;
    s.min[j] = packed[4 + j] & 63;
    s.scale[4 + j] = static_cast<uint8_t>((packed[8 + j] & 15) | (packed[j] >> 6) << 4);
    s.min[4 + j] = static_cast<uint8_t>((packed[8 + j] >> 4) | (packed[4 + j] >> 6) << 4);
  }
  return s;
}

// scales[16] (low nibble scale, high nibble minimum), 2-bit q[64], d, dmin
inline void decode_q2_k(const uint8_t* __restrict block, float* __restrict out) {
  const uint8_t* q = block + 16;
  const float d = load_f16(block + 80), dmin = load_f16(block + 82);
  for (int sub = 0; sub < 16; ++sub) {
    const float scale = d * static_cast<float>(block[sub] & 15), min = dmin * static_cast<float>(block[sub] >> 4);
    const uint8_t* source = q + 32 * (sub / 8) + 16 * (sub % 2);
    const int shift = 2 * (sub / 2 % 4);
    for (int i = 0; i < 16; ++i) out[16 * sub + i] = scale * static_cast<float>(source[i] >> shift & 3) - min;
  }
}

// high bits[32], 2-bit q[64], sixteen 6-bit scales in 12 bytes, d. A high bit that is clear subtracts 4.
inline void decode_q3_k(const uint8_t* __restrict block, float* __restrict out) {
  const uint8_t *high = block, *q = block + 32, *packed = block + 96;
  const float d = load_f16(block + 108);
  for (int sub = 0; sub < 16; ++sub) {
    const int low4 = packed[sub % 8] >> (sub < 8 ? 0 : 4) & 15;
    const int high2 = packed[8 + sub % 4] >> 2 * (sub / 4) & 3;
    const float scale = d * static_cast<float>((low4 | high2 << 4) - 32);
    const uint8_t *q_source = q + 32 * (sub / 8) + 16 * (sub % 2), *high_source = high + 16 * (sub % 2);
    const int q_shift = 2 * (sub / 2 % 4), high_shift = sub / 2;
    for (int i = 0; i < 16; ++i) {
      const int value = (q_source[i] >> q_shift & 3) + 4 * (high_source[i] >> high_shift & 1) - 4;
      out[16 * sub + i] = scale * static_cast<float>(value);
    }
  }
}

// d, dmin, scales[12], nibbles[128]: 32 bytes hold two sub-blocks
inline void decode_q4_k(const uint8_t* __restrict block, float* __restrict out) {
  const float d = load_f16(block), dmin = load_f16(block + 2);
  const ScalesAndMins s = unpack_scales(block + 4);
  for (int pair = 0; pair < 4; ++pair) {
    const uint8_t* q = block + 16 + 32 * pair;
    const float scale0 = d * s.scale[2 * pair], min0 = dmin * s.min[2 * pair];
    const float scale1 = d * s.scale[2 * pair + 1], min1 = dmin * s.min[2 * pair + 1];
    float *low = out + 64 * pair, *high = low + 32;
    for (int i = 0; i < 32; ++i) low[i] = scale0 * static_cast<float>(q[i] & 15) - min0;
    for (int i = 0; i < 32; ++i) high[i] = scale1 * static_cast<float>(q[i] >> 4) - min1;
  }
}

// d, dmin, scales[12], fifth bits[32], nibbles[128]
inline void decode_q5_k(const uint8_t* __restrict block, float* __restrict out) {
  const float d = load_f16(block), dmin = load_f16(block + 2);
  const ScalesAndMins s = unpack_scales(block + 4);
  const uint8_t* high = block + 16;
  for (int sub = 0; sub < 8; ++sub) {
    const uint8_t* q = block + 48 + 32 * (sub / 2);
    const int shift = 4 * (sub % 2);
    const float scale = d * s.scale[sub], min = dmin * s.min[sub];
    for (int i = 0; i < 32; ++i) {
      const int value = (q[i] >> shift & 15) | (high[i] >> sub & 1) << 4;
      out[32 * sub + i] = scale * static_cast<float>(value) - min;
    }
  }
}

// low nibbles[128], high two bits[64], int8 scales[16], d. Each half of 128 weights: 64 bytes of nibbles (two groups of
// 32 low, two high) and 32 bytes of high bits.
inline void decode_q6_k(const uint8_t* __restrict block, float* __restrict out) {
  const float d = load_f16(block + 208);
  float scale[16];
  for (int j = 0; j < 16; ++j) scale[j] = d * static_cast<float>(static_cast<int8_t>(block[192 + j]));
  for (int group = 0; group < 8; ++group) {
    const int half = group / 4, quarter = group % 4;
    const uint8_t* low = block + 64 * half + 32 * (quarter % 2);
    const uint8_t* high = block + 128 + 32 * half;
    const int low_shift = 4 * (quarter / 2), high_shift = 2 * quarter;
    for (int part = 0; part < 2; ++part) {
      const float s = scale[2 * group + part];
      float* o = out + 32 * group + 16 * part;
      for (int i = 0; i < 16; ++i) {
        const int q = (low[16 * part + i] >> low_shift & 15) | (high[16 * part + i] >> high_shift & 3) << 4;
        o[i] = s * static_cast<float>(q - 32);
      }
    }
  }
}

}  // namespace

BlocksDecoder find_k_decoder(DType type) {
  switch (type) {
    case DType::kQ2_K: return decode_blocks<256, 84, decode_q2_k>;
    case DType::kQ3_K: return decode_blocks<256, 110, decode_q3_k>;
    case DType::kQ4_K: return decode_blocks<256, 144, decode_q4_k>;
    case DType::kQ5_K: return decode_blocks<256, 176, decode_q5_k>;
    case DType::kQ6_K: return decode_blocks<256, 210, decode_q6_k>;
    default: return nullptr;
  }
}

}  // namespace doppler
