// From stored bytes to f32, exactly as ggml decodes them.
#pragma once

#include <cstddef>

#include "format/dtype.h"

namespace doppler {

// Decodes one row of `cols` weights; the padding of the last block is not written.
void decode_row(DType type, const std::byte* row, float* out, size_t cols);

// No infinity and no NaN among the values.
bool all_finite(const float* values, size_t count);

// MXFP4 as published checkpoints keep it, into the blocks of DType::kMXFP4. Nothing is rounded.
// blocks[n_blocks][16]: 32 codes each, element 2i in the low and 2i + 1 in the high nibble of byte i; scales[n_blocks]:
// e8m0. out[n_blocks][17]: the scale, then element i in the low and 16 + i in the high nibble of byte i.
// False if a scale stands for NaN, or is so large that a product could be infinite; the caller should refuse then.
[[nodiscard]] bool repack_mxfp4_hf(const std::byte* blocks, const std::byte* scales, std::byte* out, size_t n_blocks);

}  // namespace doppler
