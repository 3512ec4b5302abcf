#include "bench/statistics.h"

#include <algorithm>
#include <cmath>

namespace doppler {

double percentile(std::vector<double> samples, double p) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const double at = std::clamp(p, 0.0, 100.0) / 100 * static_cast<double>(samples.size() - 1);
  const size_t low = static_cast<size_t>(std::floor(at));
  const size_t high = std::min(low + 1, samples.size() - 1);
  return samples[low] + (samples[high] - samples[low]) * (at - static_cast<double>(low));
}

}  // namespace doppler
