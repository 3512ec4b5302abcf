#include "format/decode.h"
#include "ref/ops.h"

namespace doppler::ref {

void expert_matmul(const ExpertMatMul& op, In x, const Tensor& w, In bias, In route, Out out) {
  const size_t rows = static_cast<size_t>(w.shape[1]), cols = static_cast<size_t>(w.shape[2]);
  std::vector<float> row(cols);
  for (int i = 0; i < op.k; ++i) {
    const size_t slot = static_cast<size_t>(i), expert = static_cast<size_t>(route[slot]);
    const float* input = x.data() + (op.per_expert ? slot * cols : 0);
    for (size_t r = 0; r < rows; ++r) {
      decode_row(w.dtype, w.row(static_cast<int64_t>(expert * rows + r)), row.data(), cols);
      double sum = op.bias ? bias[expert * rows + r] : 0;
      for (size_t c = 0; c < cols; ++c) sum += static_cast<double>(input[c]) * row[c];
      out[slot * rows + r] = static_cast<float>(sum);
    }
  }
}

}  // namespace doppler::ref
