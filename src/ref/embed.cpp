#include "format/decode.h"
#include "ref/ops.h"

namespace doppler::ref {

void embed(const Tensor& matrix, std::span<const int32_t> tokens, float scale, Out out) {
  const size_t width = static_cast<size_t>(matrix.cols());
  for (size_t t = 0; t < tokens.size(); ++t) {
    float* row = out.data() + t * width;
    decode_row(matrix.dtype, matrix.row(tokens[t]), row, width);
    for (size_t i = 0; i < width; ++i) row[i] *= scale;
  }
}

}  // namespace doppler::ref
