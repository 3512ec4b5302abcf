#include <algorithm>
#include <cmath>

#include "ref/ops.h"

namespace doppler::ref {

void softmax(In x, Out out) {
  const double highest = *std::max_element(x.begin(), x.end());
  double total = 0;
  for (const float value : x) total += std::exp(value - highest);
  for (size_t i = 0; i < x.size(); ++i) out[i] = static_cast<float>(std::exp(x[i] - highest) / total);
}

}  // namespace doppler::ref
