#include "convert/synth_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/half.h"

namespace doppler {
namespace {

// Expands "this level for that many of 128 draws" into a table indexed by seven random bits.
template <size_t N>
constexpr std::array<uint8_t, 128> spread(const std::array<int, N>& counts) {
  std::array<uint8_t, 128> table{};
  size_t at = 0;
  for (size_t level = 0; level < N; ++level) {
    for (int i = 0; i < counts[level]; ++i) table[at++] = static_cast<uint8_t>(level);
  }
  return table;
}

// Distance of a 4-bit level from the middle (8, 9 … 15 above 7.5, mirrored below): a bell cut at sixteen levels.
constexpr std::array<int, 8> kNibbleCounts = {36, 31, 25, 17, 10, 5, 2, 2};
constexpr double kNibbleDeviation = 2.7867;  // √(Σ count · (level − 7.5)² / 128)
// Magnitudes 0, ½, 1, 1½, 2, 3, 4, 6 of e2m1, for a bell of deviation 1.6 rounded to them.
constexpr std::array<int, 8> kE2m1Counts = {16, 30, 26, 21, 20, 11, 3, 1};
constexpr double kE2m1Deviation = 1.63877;
constexpr auto kNibbleSpread = spread(kNibbleCounts);
constexpr auto kE2m1Spread = spread(kE2m1Counts);

constexpr std::array<uint8_t, 256> make_table(bool e2m1) {
  std::array<uint8_t, 256> table{};
  for (size_t b = 0; b < 256; ++b) {
    const uint8_t distance = e2m1 ? kE2m1Spread[b & 127] : kNibbleSpread[b & 127];
    if (e2m1)
      table[b] = static_cast<uint8_t>(distance | (b >> 7 << 3));
    else
      table[b] = static_cast<uint8_t>(b >> 7 ? 8 + distance : 7 - distance);
  }
  return table;
}
constexpr std::array<uint8_t, 256> kNibble = make_table(false), kE2m1 = make_table(true);

// Four bell-shaped numbers of mean 0 from one word: each the sum of four 4-bit fields, −30 … 30.
constexpr double kSumDeviation = 9.2195445;  // √(4 · (16² − 1) / 12)
std::array<int, 4> four_sums(uint64_t word) {
  constexpr uint64_t kNibbles = 0x0f0f0f0f0f0f0f0full, kBytes = 0x00ff00ff00ff00ffull;
  const uint64_t pairs = (word & kNibbles) + (word >> 4 & kNibbles);
  const uint64_t sums = (pairs & kBytes) + (pairs >> 8 & kBytes);
  std::array<int, 4> out;
  for (int i = 0; i < 4; ++i) out[static_cast<size_t>(i)] = static_cast<int>(sums >> (16 * i) & 0xff) - 30;
  return out;
}

// One bell-shaped number of mean 0 and deviation 1: the sum of four 16-bit fields.
float one_float(uint64_t word) {
  const auto sum = static_cast<double>((word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48));
  return static_cast<float>((sum - 131070.0) / 37837.227);
}

void put_half(uint8_t* out, double value) {
  const uint16_t half = f32_to_f16(static_cast<float>(value));
  std::memcpy(out, &half, 2);
}

// Each block takes its words from `key` at counters of its own. `used` of the block's weights are real.
void q4_k_block(uint64_t key, uint64_t block, double deviation, uint8_t* out, size_t used) {
  constexpr uint64_t kWords = 33;
  constexpr double kScaleSize = 51.932;  // root mean square of 40 … 63
  const double d = deviation / (kNibbleDeviation * kScaleSize);
  put_half(out, d);
  put_half(out + 2, 7.5 * d);
  // The minimum equals the scale, so that with dmin = 7.5·d a weight is d·sc·(q − 7.5).
  uint8_t scale[8];
  const uint64_t word = random_word(key, block * kWords + 32);
  for (size_t j = 0; j < 8; ++j) {
    scale[j] = j * 32 < used ? static_cast<uint8_t>(40 + (word >> (8 * j) & 0xff) * 24 / 256) : 0;
  }
  for (size_t j = 0; j < 4; ++j) {
    out[4 + j] = out[8 + j] = static_cast<uint8_t>(scale[j] | (scale[j + 4] >> 4) << 6);
    out[12 + j] = static_cast<uint8_t>((scale[j + 4] & 15) | (scale[j + 4] & 15) << 4);
  }
  for (uint64_t w = 0; w < 32; ++w) {
    const uint64_t bits = random_word(key, block * kWords + w);
    for (size_t i = 0; i < 4; ++i) {
      out[16 + w * 4 + i] =
          static_cast<uint8_t>(kNibble[bits >> (16 * i) & 0xff] | kNibble[bits >> (16 * i + 8) & 0xff] << 4);
    }
  }
  for (size_t e = used; e < 256; ++e) {
    uint8_t& byte = out[16 + e / 64 * 32 + e % 32];
    byte = e % 64 < 32 ? static_cast<uint8_t>((byte & 0xf0) | 7) : static_cast<uint8_t>((byte & 0x0f) | 7 << 4);
  }
}

void q6_k_block(uint64_t key, uint64_t block, double deviation, uint8_t* out, size_t used) {
  constexpr uint64_t kWords = 66;
  constexpr double kScaleSize = 104.361;  // root mean square of 80 … 127
  uint8_t q[256];
  for (uint64_t w = 0; w < 64; ++w) {
    const std::array<int, 4> sums = four_sums(random_word(key, block * kWords + w));
    for (size_t i = 0; i < 4; ++i) q[w * 4 + i] = static_cast<uint8_t>(w * 4 + i < used ? 32 + sums[i] : 32);
  }
  // ql: elements 0–63 and 64–127 of a half share bytes; qh: two bits of the elements 32 apart.
  for (size_t half = 0; half < 2; ++half) {
    const uint8_t* e = q + half * 128;
    for (size_t i = 0; i < 64; ++i) out[half * 64 + i] = static_cast<uint8_t>((e[i] & 15) | (e[i + 64] & 15) << 4);
    for (size_t i = 0; i < 32; ++i) {
      out[128 + half * 32 + i] =
          static_cast<uint8_t>(e[i] >> 4 | e[i + 32] >> 4 << 2 | e[i + 64] >> 4 << 4 | e[i + 96] >> 4 << 6);
    }
  }
  for (size_t j = 0; j < 16; ++j) {
    const uint64_t word = random_word(key, block * kWords + 64 + j / 8);
    out[192 + j] = static_cast<uint8_t>(80 + (word >> (8 * (j % 8)) & 0xff) * 48 / 256);
  }
  put_half(out + 208, deviation / (kSumDeviation * kScaleSize));
}

void q8_0_block(uint64_t key, uint64_t block, double deviation, uint8_t* out, size_t used) {
  put_half(out, deviation / (4 * kSumDeviation));
  for (uint64_t w = 0; w < 8; ++w) {
    const std::array<int, 4> sums = four_sums(random_word(key, block * 8 + w));
    for (size_t i = 0; i < 4; ++i) out[2 + w * 4 + i] = static_cast<uint8_t>(w * 4 + i < used ? 4 * sums[i] : 0);
  }
}

void mxfp4_block(uint64_t key, uint64_t block, double deviation, uint8_t* out, size_t used) {
  constexpr uint64_t kWords = 5;
  // Scales are powers of two: mix the two around the wanted one so that the mean square comes out right.
  int exponent = 0;
  const double fraction = 2 * std::frexp(deviation / kE2m1Deviation, &exponent);  // 1 … 2
  const double larger = (fraction * fraction - 1) / 3;
  const auto draw = static_cast<double>(random_word(key, block * kWords + 4) >> 11) * 0x1p-53;
  out[0] = static_cast<uint8_t>(std::clamp(exponent - 1 + (draw < larger ? 1 : 0) + 127, 1, 250));
  for (uint64_t w = 0; w < 4; ++w) {
    const uint64_t bits = random_word(key, block * kWords + w);
    for (size_t i = 0; i < 4; ++i) {
      const size_t at = w * 4 + i;
      const unsigned low = at < used ? kE2m1[bits >> (16 * i) & 0xff] : 0;
      const unsigned high = at + 16 < used ? kE2m1[bits >> (16 * i + 8) & 0xff] : 0;
      out[1 + at] = static_cast<uint8_t>(low | high << 4);
    }
  }
}

using BlockMaker = void (*)(uint64_t, uint64_t, double, uint8_t*, size_t);

BlockMaker block_maker(DType dtype) {
  switch (dtype) {
    case DType::kQ4_K: return q4_k_block;
    case DType::kQ6_K: return q6_k_block;
    case DType::kQ8_0: return q8_0_block;
    case DType::kMXFP4: return mxfp4_block;
    default: return nullptr;
  }
}

}  // namespace

uint64_t random_word(uint64_t key, uint64_t counter) {
  uint64_t x = key + counter * 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

uint64_t stream_key(uint64_t seed, const char* text, size_t length) {
  uint64_t key = random_word(seed, 1);
  for (size_t i = 0; i < length; ++i) key = random_word(key ^ static_cast<uint8_t>(text[i]), i + 2);
  return key;
}

void synth_row(DType dtype, uint64_t key, uint64_t row, float deviation, std::byte* out, size_t cols) {
  auto* bytes = reinterpret_cast<uint8_t*>(out);
  const DTypeInfo& type = info(dtype);
  const auto width = static_cast<size_t>(type.block_weights), size = static_cast<size_t>(type.block_bytes);
  if (const BlockMaker make = block_maker(dtype)) {
    const uint64_t blocks = (cols + width - 1) / width;
    for (uint64_t b = 0; b < blocks; ++b) {
      make(key, row * blocks + b, deviation, bytes + b * size, std::min<size_t>(width, cols - b * width));
    }
    return;
  }
  for (size_t i = 0; i < cols; ++i) {
    const float value = deviation * one_float(random_word(key, row * cols + i));
    const uint16_t half = dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
    if (dtype == DType::kF32)
      std::memcpy(bytes + 4 * i, &value, 4);
    else if (dtype == DType::kF16 || dtype == DType::kBF16)
      std::memcpy(bytes + 2 * i, &half, 2);
    else
      fail({.code = ErrorCode::kInternal, .what = "no random weights in this format", .where = std::string(type.name)});
  }
}

void synth_floats(uint64_t key, float mean, float deviation, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = mean + deviation * one_float(random_word(key, i));
}

}  // namespace doppler
