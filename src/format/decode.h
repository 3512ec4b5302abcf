// From stored bytes to f32, exactly as ggml decodes them.
#pragma once

#include <cstddef>

#include "format/dtype.h"

namespace doppler {

// Decodes one row of `cols` weights; the padding of the last block is not written.
void decode_row(DType type, const std::byte* row, float* out, size_t cols);

// No infinity and no NaN among the values.
bool all_finite(const float* values, size_t count);

}  // namespace doppler
