#include "gpu/run/bandwidth.h"

#include <algorithm>
#include <chrono>

#include "gpu/ops/copy.h"

namespace doppler::gpu {

double measure_copy_bandwidth(int adapter) {
  using Clock = std::chrono::steady_clock;
  Device device({.adapter = adapter});
  // Far more than any cache holds; a software adapter gets less, it would take seconds.
  const uint64_t wanted = device.capabilities().software ? 16ull << 20 : 1ull << 30;
  const Limits& limits = device.capabilities().limits;
  const uint64_t bytes = std::min({wanted, limits.max_buffer_bytes, limits.max_binding_bytes}) / 16 * 16;
  const Buffer from = device.create_buffer("copy from", bytes), to = device.create_buffer("copy to", bytes);
  Recording recording(device, "bandwidth");
  record_copy(recording, "copy", from, to, bytes);
  double best = 0;
  for (int run = 0; run < 6; ++run) {  // the first warms up, yet cannot be the best
    const auto start = Clock::now();
    double seconds = 0;
    if (device.capabilities().timestamps) {
      seconds = device.time_ns(recording) * 1e-9;
    } else {
      device.submit(recording);
      device.wait();
      seconds = std::chrono::duration<double>(Clock::now() - start).count();
    }
    if (seconds > 0) best = std::max(best, 2 * static_cast<double>(bytes) / seconds);
  }
  return best;
}

}  // namespace doppler::gpu
