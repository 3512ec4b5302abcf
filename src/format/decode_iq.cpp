// The IQ types: weights are points of a published code book (iq_tables.h) times a scale, with their signs apart; IQ4
// has one book of sixteen levels for single weights.
#include "format/decode_blocks.h"
#include "format/iq_tables.h"

namespace doppler {
namespace {

// `magnitudes` is a point of 4 or 8 values; bit i of `signs` makes value i negative.
template <size_t N>
inline void write_point(const std::array<int8_t, N>& magnitudes, unsigned signs, float scale, float* out) {
  for (size_t i = 0; i < N; ++i) {
    const uint32_t value = std::bit_cast<uint32_t>(scale * static_cast<float>(magnitudes[i]));
    out[i] = std::bit_cast<float>(value ^ (signs >> i & 1u) << 31);
  }
}

// d, then for each 32 weights: four indices of points, and 32 bits holding four times seven signs and a 4-bit scale
inline void decode_iq2_xxs(const uint8_t* __restrict block, float* __restrict out) {
  const IqTables& t = iq_tables();
  const float d = load_f16(block);
  for (int group = 0; group < 8; ++group) {
    const uint8_t* bytes = block + 2 + 8 * group;
    const uint32_t word = load_u32(bytes + 4);
    const float scale = d * (0.5f + static_cast<float>(word >> 28)) * 0.25f;
    for (int p = 0; p < 4; ++p) {
      write_point(t.iq2_xxs[bytes[p]], t.parity8[word >> 7 * p & 127], scale, out + 32 * group + 8 * p);
    }
  }
}

// d, 32 codes of 9 bits of index and 7 of signs, a 4-bit scale for every two points
inline void decode_iq2_xs(const uint8_t* __restrict block, float* __restrict out) {
  const IqTables& t = iq_tables();
  const float d = load_f16(block);
  const uint8_t* scales = block + 66;
  for (int p = 0; p < 32; ++p) {
    const unsigned code = load_u16(block + 2 + 2 * p);
    const float scale = d * (0.5f + static_cast<float>(scales[p / 4] >> 4 * (p / 2 % 2) & 15)) * 0.25f;
    write_point(t.iq2_xs[code & 511], t.parity8[code >> 9], scale, out + 8 * p);
  }
}

// d, 32 low bytes of the index, 32 bytes of signs, two high bits of the index each, a 4-bit scale for every two points
inline void decode_iq2_s(const uint8_t* __restrict block, float* __restrict out) {
  const IqTables& t = iq_tables();
  const float d = load_f16(block);
  const uint8_t *index = block + 2, *signs = block + 34, *high = block + 66, *scales = block + 74;
  for (int p = 0; p < 32; ++p) {
    const unsigned code = index[p] | static_cast<unsigned>(high[p / 4] >> 2 * (p % 4) & 3) << 8;
    const float scale = d * (0.5f + static_cast<float>(scales[p / 4] >> 4 * (p / 2 % 2) & 15)) * 0.25f;
    write_point(t.iq2_s[code], signs[p], scale, out + 8 * p);
  }
}

// d, 64 indices of points of four, then for each 32 weights four times seven signs and a 4-bit scale
inline void decode_iq3_xxs(const uint8_t* __restrict block, float* __restrict out) {
  const IqTables& t = iq_tables();
  const float d = load_f16(block);
  for (int group = 0; group < 8; ++group) {
    const uint8_t* index = block + 2 + 8 * group;
    const uint32_t word = load_u32(block + 66 + 4 * group);
    const float scale = d * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
    for (int p = 0; p < 8; ++p) {
      const unsigned signs = t.parity8[word >> 7 * (p / 2) & 127];
      write_point(t.iq3_xxs[index[p]], signs >> 4 * (p % 2), scale, out + 32 * group + 4 * p);
    }
  }
}

// d, 64 low bytes of the index, its ninth bit each, 32 bytes of signs, a 4-bit scale for each 32 weights
inline void decode_iq3_s(const uint8_t* __restrict block, float* __restrict out) {
  const IqTables& t = iq_tables();
  const float d = load_f16(block);
  const uint8_t *index = block + 2, *high = block + 66, *signs = block + 74, *scales = block + 106;
  for (int p = 0; p < 64; ++p) {
    const unsigned code = index[p] | static_cast<unsigned>(high[p / 8] >> p % 8 & 1) << 8;
    const float scale = d * static_cast<float>(1 + 2 * (scales[p / 16] >> 4 * (p / 8 % 2) & 15));
    write_point(t.iq3_s[code], static_cast<unsigned>(signs[p / 2] >> 4 * (p % 2)), scale, out + 4 * p);
  }
}

// d, 32 low bytes of the index, then for each 32 weights four times three high bits, a 3-bit scale and the sign of a
// shift of 1/8 that all of them share
inline void decode_iq1_s(const uint8_t* __restrict block, float* __restrict out) {
  const IqTables& t = iq_tables();
  const float d = load_f16(block);
  for (int group = 0; group < 8; ++group) {
    const unsigned word = load_u16(block + 34 + 2 * group);
    const float scale = d * static_cast<float>(2 * (word >> 12 & 7) + 1);
    const float shift = (word & 0x8000u) != 0 ? -0.125f : 0.125f;
    for (int p = 0; p < 4; ++p) {
      const Point8& point = t.iq1_s[block[2 + 4 * group + p] | (word >> 3 * p & 7) << 8];
      for (int i = 0; i < 8; ++i) {
        out[32 * group + 8 * p + i] = scale * (static_cast<float>(point[static_cast<size_t>(i)]) + shift);
      }
    }
  }
}

// 16 bytes of nibbles: the low ones are weights 0 … 15, the high ones 16 … 31
inline void write_levels(const uint8_t* q, float scale, float* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(kIq4Levels[q[i] & 15]);
    out[16 + i] = scale * static_cast<float>(kIq4Levels[q[i] >> 4]);
  }
}

inline void decode_iq4_nl(const uint8_t* __restrict block, float* __restrict out) {
  write_levels(block + 2, load_f16(block), out);
}

// d, two high bits of eight 6-bit scales (minus 32), their low nibbles, nibbles[128]
inline void decode_iq4_xs(const uint8_t* __restrict block, float* __restrict out) {
  const float d = load_f16(block);
  const unsigned high = load_u16(block + 2);
  for (int group = 0; group < 8; ++group) {
    const int low4 = block[4 + group / 2] >> 4 * (group % 2) & 15, high2 = static_cast<int>(high >> 2 * group & 3);
    write_levels(block + 8 + 16 * group, d * static_cast<float>((low4 | high2 << 4) - 32), out + 32 * group);
  }
}

}  // namespace

BlocksDecoder find_iq_decoder(DType type) {
  switch (type) {
    case DType::kIQ4_NL: return decode_blocks<32, 18, decode_iq4_nl>;
    case DType::kIQ4_XS: return decode_blocks<256, 136, decode_iq4_xs>;
    case DType::kIQ2_XXS: return decode_blocks<256, 66, decode_iq2_xxs>;
    case DType::kIQ2_XS: return decode_blocks<256, 74, decode_iq2_xs>;
    case DType::kIQ2_S: return decode_blocks<256, 82, decode_iq2_s>;
    case DType::kIQ3_XXS: return decode_blocks<256, 98, decode_iq3_xxs>;
    case DType::kIQ3_S: return decode_blocks<256, 110, decode_iq3_s>;
    case DType::kIQ1_S: return decode_blocks<256, 50, decode_iq1_s>;
    default: return nullptr;
  }
}

}  // namespace doppler
