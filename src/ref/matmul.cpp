#include "format/decode.h"
#include "ref/ops.h"

namespace doppler::ref {

void matmul(In x, const Tensor& w, In bias, Out out) {
  const size_t rows = static_cast<size_t>(w.rows()), cols = static_cast<size_t>(w.cols()), n = x.size() / cols;
  std::vector<float> row(cols);
  for (size_t r = 0; r < rows; ++r) {
    decode_row(w.dtype, w.row(static_cast<int64_t>(r)), row.data(), cols);
    for (size_t t = 0; t < n; ++t) {
      double sum = bias.empty() ? 0 : bias[r];
      for (size_t i = 0; i < cols; ++i) sum += static_cast<double>(x[t * cols + i]) * row[i];
      out[t * rows + r] = static_cast<float>(sum);
    }
  }
}

}  // namespace doppler::ref
