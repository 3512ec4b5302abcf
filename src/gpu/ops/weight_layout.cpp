#include "gpu/ops/weight_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace doppler::gpu {
namespace {

constexpr size_t kBlock = 256;  // weights of a K-quant's block

size_t pieces_of(size_t cols) { return (cols + kPiece - 1) / kPiece; }
size_t blocks_of(size_t cols) { return (cols + kBlock - 1) / kBlock; }

// Eight bytes at a time: without branches in the loops, this is as fast as memory is.
uint64_t eight_bytes(const uint8_t* at) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, at, 8);
  return bytes;
}

constexpr uint64_t kLowNibbles = 0x0f0f0f0f0f0f0f0fu, kLowPairs = 0x0303030303030303u;

// Of 32 bytes, the nibble `shift` bits up: weight i goes to the low nibble of byte i, weight 16 + i to the high one.
void pack_nibbles(const uint8_t* bytes, size_t shift, uint8_t* out) {
  for (size_t i = 0; i < 16; i += 8) {
    const uint64_t low = eight_bytes(bytes + i) >> shift & kLowNibbles;
    const uint64_t high = eight_bytes(bytes + 16 + i) >> shift & kLowNibbles;
    const uint64_t both = low | high << 4;
    std::memcpy(out + i, &both, 8);
  }
}

void pack_plain(size_t value_bytes, const uint8_t* row, uint8_t* out, size_t cols) {
  std::memcpy(out, row, cols * value_bytes);
}

void pack_q8_0(const uint8_t* row, uint8_t* out, size_t cols) {
  const size_t pieces = pieces_of(cols);
  uint8_t* scales = out + pieces * 32;
  for (size_t p = 0; p < pieces; ++p) {
    std::memcpy(scales + p * 2, row + p * 34, 2);
    std::memcpy(out + p * 32, row + p * 34 + 2, 32);
  }
}

void pack_q4_k(const uint8_t* row, uint8_t* out, size_t cols) {
  const size_t pieces = pieces_of(cols), blocks = blocks_of(cols);
  uint8_t* factors = out + pieces * 16;
  for (size_t b = 0; b < blocks; ++b) {
    const uint8_t* block = row + b * 144;
    for (size_t j = 0; j < 8 && b * 8 + j < pieces; ++j) {
      const size_t p = b * 8 + j;
      uint8_t* factor = factors + p * 4;
      std::memcpy(factor, block + (p % 2) * 2, 2);  // d and dmin in turn
      factor[2] = static_cast<uint8_t>(j < 4 ? block[4 + j] & 63 : (block[8 + j] & 15) | (block[j] >> 6) << 4);
      factor[3] = static_cast<uint8_t>(j < 4 ? block[8 + j] & 63 : (block[8 + j] >> 4) | (block[4 + j] >> 6) << 4);
      pack_nibbles(block + 16 + 32 * (j / 2), j % 2 * 4, out + p * 16);
    }
  }
  if (pieces % 2 == 1) std::memcpy(factors + pieces * 4, row + (blocks - 1) * 144 + 2, 2);  // the last piece's dmin
}

void pack_q6_k(const uint8_t* row, uint8_t* out, size_t cols) {
  const size_t pieces = pieces_of(cols), blocks = blocks_of(cols);
  uint8_t* high = out + pieces * 16;
  uint8_t* factors = high + pieces * 8;
  for (size_t b = 0; b < blocks; ++b) {
    const uint8_t* block = row + b * 210;
    for (size_t j = 0; j < 8 && b * 8 + j < pieces; ++j) {
      const size_t p = b * 8 + j, half = j / 4, quarter = j % 4;  // 128 weights a half, 32 a quarter of it
      pack_nibbles(block + 64 * half + 32 * (quarter % 2), quarter / 2 * 4, out + p * 16);
      const uint8_t* qh = block + 128 + 32 * half;
      uint64_t pairs = 0;
      for (size_t i = 0; i < 4; ++i) pairs |= (eight_bytes(qh + 8 * i) >> 2 * quarter & kLowPairs) << 2 * i;
      std::memcpy(high + p * 8, &pairs, 8);
      std::memcpy(factors + p * 4, block + 192 + 2 * j, 2);
      std::memcpy(factors + p * 4 + 2, block + 208, 2);
    }
  }
}

void pack_mxfp4(const uint8_t* row, uint8_t* out, size_t cols) {
  const size_t pieces = pieces_of(cols);
  for (size_t p = 0; p < pieces; ++p) {
    const uint8_t* block = row + p * 17;
    for (size_t half = 0; half < 16; half += 8) {
      uint64_t codes = eight_bytes(block + 1 + half);
      const uint64_t sized = (codes | codes >> 1 | codes >> 2) & 0x1111111111111111u;  // nibbles that are not ±0
      codes &= ~(~sized << 3 & 0x8888888888888888u);
      std::memcpy(out + p * 16 + half, &codes, 8);
    }
    out[pieces * 16 + p] = static_cast<uint8_t>(std::max<int>(block[0], 1) - 1);
  }
}

[[noreturn]] void not_packable(DType type) {
  fail({.code = ErrorCode::kUnsupported,
        .what = fmt::format("the WebGPU backend cannot compute from {} weights", name_of(type)),
        .expected = "F32, F16, BF16, Q8_0, Q4_K, Q6_K or MXFP4",
        .got = std::string(name_of(type)),
        .todo = "convert the model to one of these types"});
}

}  // namespace

bool is_packable(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kQ8_0:
    case DType::kQ4_K:
    case DType::kQ6_K:
    case DType::kMXFP4: return true;
    default: return false;
  }
}

std::string_view kernel_name(DType type) {
  switch (type) {
    case DType::kF32: return "f32";
    case DType::kF16: return "f16";
    case DType::kBF16: return "bf16";
    case DType::kQ8_0: return "q8_0";
    case DType::kQ4_K: return "q4_k";
    case DType::kQ6_K: return "q6_k";
    case DType::kMXFP4: return "mxfp4";
    default: not_packable(type);
  }
}

size_t packed_row_bytes(DType type, size_t cols) {
  const size_t pieces = pieces_of(cols);
  size_t bytes = 0;
  switch (type) {
    case DType::kF32: bytes = pieces * 128; break;
    case DType::kF16:
    case DType::kBF16: bytes = pieces * 64; break;
    case DType::kQ8_0: bytes = pieces * 34; break;
    case DType::kQ4_K: bytes = pieces * 16 + (pieces + 1) / 2 * 8; break;
    case DType::kQ6_K: bytes = pieces * 28; break;
    case DType::kMXFP4: bytes = pieces * 17; break;
    default: not_packable(type);
  }
  return (bytes + 15) / 16 * 16;
}

void pack_row(DType type, const std::byte* row, std::byte* packed, size_t cols) {
  const auto* in = reinterpret_cast<const uint8_t*>(row);
  auto* out = reinterpret_cast<uint8_t*>(packed);
  std::memset(out, 0, packed_row_bytes(type, cols));
  switch (type) {
    case DType::kF32: return pack_plain(4, in, out, cols);
    case DType::kF16:
    case DType::kBF16: return pack_plain(2, in, out, cols);
    case DType::kQ8_0: return pack_q8_0(in, out, cols);
    case DType::kQ4_K: return pack_q4_k(in, out, cols);
    case DType::kQ6_K: return pack_q6_k(in, out, cols);
    case DType::kMXFP4: return pack_mxfp4(in, out, cols);
    default: not_packable(type);
  }
}

}  // namespace doppler::gpu
