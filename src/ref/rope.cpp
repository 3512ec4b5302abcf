#include <cmath>

#include "ref/ops.h"

namespace doppler::ref {

void rope(In x, int width, int head_dim, const RopeTable& table, int first, Out out) {
  const int half = head_dim / 2;
  const int n = static_cast<int>(x.size()) / width;
  for (int t = 0; t < n; ++t) {
    for (int head = 0; head < width; head += head_dim) {
      const size_t start = static_cast<size_t>(t) * static_cast<size_t>(width) + static_cast<size_t>(head);
      for (int i = 0; i < half; ++i) {
        const double angle = static_cast<double>(first + t) * table.inv_freq[static_cast<size_t>(i)];
        const double c = std::cos(angle) * table.magnitude, s = std::sin(angle) * table.magnitude;
        const size_t low = start + static_cast<size_t>(i), high = low + static_cast<size_t>(half);
        const double a = x[low], b = x[high];
        out[low] = static_cast<float>(a * c - b * s);
        out[high] = static_cast<float>(b * c + a * s);
      }
    }
  }
}

}  // namespace doppler::ref
