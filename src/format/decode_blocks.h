// One function a stored type: decodes whole blocks. decode.cpp chooses among them and handles the last, partial block.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "format/dtype.h"

namespace doppler {

// bytes[blocks * block_bytes] -> out[blocks * block_weights]
using BlocksDecoder = void (*)(const uint8_t* bytes, float* out, size_t blocks);

BlocksDecoder find_k_decoder(DType type);   // Q2_K … Q6_K, null for others
BlocksDecoder find_iq_decoder(DType type);  // IQ*, null for others

// Stored numbers are little-endian and unaligned.
static_assert(std::endian::native == std::endian::little, "rows of plain floats are copied as they are stored");
inline uint16_t load_u16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
inline uint32_t load_u32(const uint8_t* p) {
  return static_cast<uint32_t>(load_u16(p)) | static_cast<uint32_t>(load_u16(p + 2)) << 16;
}
inline float load_f16(const uint8_t* p) { return f16_to_f32(load_u16(p)); }

// Makes a decoder of blocks from one of a single block, which the compiler then inlines and vectorises.
template <int Weights, int Bytes, void (*DecodeBlock)(const uint8_t* __restrict block, float* __restrict out)>
void decode_blocks(const uint8_t* bytes, float* out, size_t blocks) {
  for (size_t b = 0; b < blocks; ++b) DecodeBlock(bytes + b * Bytes, out + b * Weights);
}

}  // namespace doppler
