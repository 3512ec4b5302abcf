#include <cmath>

#include "ref/ops.h"

namespace doppler::ref {

void norm(In x, In w, float eps, float offset, Out out) {
  const size_t width = w.size();
  for (size_t start = 0; start < x.size(); start += width) {
    double squares = 0;
    for (size_t i = 0; i < width; ++i) squares += static_cast<double>(x[start + i]) * x[start + i];
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(width) + eps);
    for (size_t i = 0; i < width; ++i) {
      out[start + i] = static_cast<float>(x[start + i] * inverse * (static_cast<double>(offset) + w[i]));
    }
  }
}

}  // namespace doppler::ref
