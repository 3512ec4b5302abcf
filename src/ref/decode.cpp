#include "format/decode.h"

#include "ref/ops.h"

namespace doppler::ref {

std::vector<float> decode(const Tensor& tensor) {
  const size_t rows = static_cast<size_t>(tensor.rows()), cols = static_cast<size_t>(tensor.cols());
  std::vector<float> values(rows * cols);
  for (size_t r = 0; r < rows; ++r) {
    decode_row(tensor.dtype, tensor.row(static_cast<int64_t>(r)), values.data() + r * cols, cols);
  }
  return values;
}

}  // namespace doppler::ref
