// Numbers about a whole tensor. Never a part of it: the first five values have misled people before.
#pragma once

#include <span>

namespace doppler {

struct TensorStatistics {
  float min = 0, max = 0, max_abs = 0;  // of the finite values
  double mean = 0, rms = 0;
  size_t count = 0, not_finite = 0;
  size_t first_not_finite = 0;  // index, where there is one
};
TensorStatistics statistics(std::span<const float> values);

}  // namespace doppler
