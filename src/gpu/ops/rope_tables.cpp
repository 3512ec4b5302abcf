#include "gpu/ops/rope_tables.h"

#include <cmath>

namespace doppler::gpu {

std::vector<float> rope_tables(const RopeTable& table, int context) {
  const int coarse = (context + 255) / 256;
  std::vector<float> out;
  out.reserve(2 * table.inv_freq.size() * static_cast<size_t>(256 + coarse));
  const auto append = [&](int position, double magnitude) {
    for (const float frequency : table.inv_freq) {
      const double angle = static_cast<double>(position) * static_cast<double>(frequency);
      out.push_back(static_cast<float>(std::cos(angle) * magnitude));
      out.push_back(static_cast<float>(std::sin(angle) * magnitude));
    }
  };
  for (int i = 0; i < 256; ++i) append(i, 1);
  for (int i = 0; i < coarse; ++i) append(256 * i, static_cast<double>(table.magnitude));
  return out;
}

}  // namespace doppler::gpu
