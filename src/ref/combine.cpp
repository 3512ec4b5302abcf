#include "ref/ops.h"

namespace doppler::ref {

void combine(int k, In experts, In route, Out out) {
  for (size_t i = 0; i < out.size(); ++i) {
    double sum = 0;
    for (size_t e = 0; e < static_cast<size_t>(k); ++e) {
      sum += static_cast<double>(route[static_cast<size_t>(k) + e]) * experts[e * out.size() + i];
    }
    out[i] = static_cast<float>(sum);
  }
}

}  // namespace doppler::ref
