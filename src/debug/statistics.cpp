#include "debug/statistics.h"

#include <algorithm>
#include <cmath>

namespace doppler {

TensorStatistics statistics(std::span<const float> values) {
  TensorStatistics s;
  s.count = values.size();
  double sum = 0, squares = 0;
  bool any = false;
  for (size_t i = 0; i < values.size(); ++i) {
    const float v = values[i];
    if (!std::isfinite(v)) {
      if (s.not_finite++ == 0) s.first_not_finite = i;
      continue;
    }
    s.min = any ? std::min(s.min, v) : v;
    s.max = any ? std::max(s.max, v) : v;
    any = true;
    sum += v;
    squares += static_cast<double>(v) * v;
  }
  const auto finite = static_cast<double>(s.count - s.not_finite);
  s.max_abs = std::max(std::fabs(s.min), std::fabs(s.max));
  if (finite > 0) {
    s.mean = sum / finite;
    s.rms = std::sqrt(squares / finite);
  }
  return s;
}

}  // namespace doppler
