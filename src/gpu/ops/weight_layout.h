// How a weight matrix lies in GPU memory: row after row, every row cut into pieces of 32 consecutive weights, the parts
// of a quantised block regrouped into planes so that a piece is two or three aligned loads and its scales are bytes: on
// a GPU the number of loads costs more than the few bytes that are stored twice. No value changes; the unused tail of a
// last block is dropped.
//
// A row of P = ceil(cols / 32) pieces, planes in this order, each plane starting where the one before ends, the row
// padded to 16 bytes:
//   F32    [P][32] f32             F16, BF16  [P][32] u16
//   Q8_0   [P][32] i8,  [P] f16 scale
//   Q4_K   [P][16] bytes: byte i holds weight i (low nibble) and 16 + i;
//          [⌈P / 2⌉] two words for two pieces: d | scale << 16 | min << 24 of the first, dmin | scale << 16 | min << 24
//          of the second, which is of the same block
//   Q6_K   [P][16] bytes of low nibbles as Q4_K;  [P][8] bytes: byte i holds the high 2 bits of weights i, 8 + i,
//          16 + i, 24 + i;  [P] i8 scale of weights 0…15, i8 scale of 16…31, f16 d
//   MXFP4  [P][16] bytes of e2m1 codes as the nibbles of Q4_K, −0 as 0;  [P] u8 e8m0 scale less one: the exponent
//          bits of half the scale as f32 (2^-128 and 2^-127 become 0)
// Padding holds zeros, but kernels rely on x being zero past `cols`, not on that.
// ops/lib/<type>.wgsl reads these layouts.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "format/dtype.h"

namespace doppler::gpu {

inline constexpr int kPiece = 32;  // weights

// Types that kernels can compute from.
bool is_packable(DType type);

// The name of a type in kernel variants: "q4_k".
std::string_view kernel_name(DType type);

// May x be rounded to int8 for a product with such weights? With 4- and 6-bit weights its error drowns in theirs;
// whoever takes 8-bit weights wants the precision.
inline bool takes_int8(DType type) { return type == DType::kQ4_K || type == DType::kQ6_K; }

// Bytes of one packed row, a multiple of 16.
size_t packed_row_bytes(DType type, size_t cols);

// Packs one stored row (row_bytes(type, cols) bytes) into packed_row_bytes(type, cols) bytes.
void pack_row(DType type, const std::byte* row, std::byte* packed, size_t cols);

}  // namespace doppler::gpu
