#include "cpu/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "cpu/isa.h"
#include "cpu/memory.h"

namespace doppler {

double measure_read_bandwidth(ThreadPool& pool, size_t bytes) {
  constexpr size_t kLeast = size_t{1} << 20, kMost = size_t{1} << 30, kPassBytes = size_t{512} << 20;
  constexpr int kPasses = 7;
  const size_t size = std::clamp(bytes, kLeast, kMost), times = (kPassBytes + size - 1) / size;
  const cpu::Kernels& kernels = cpu::choose_kernels();
  const cpu::Memory buffer = cpu::Memory::large(size, "measuring the read bandwidth");
  const auto part = [&](int index, int count) { return split_range(static_cast<long>(size), index, count, 4096); };
  std::atomic<uint64_t> sum{0};
  pool.run([&](int index, int count) {  // zero pages are shared until written to
    const Range r = part(index, count);
    for (long i = r.begin; i < r.end; i += 64) buffer.data()[i] = static_cast<std::byte>(i >> 6);
  });
  std::vector<double> rates;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.run([&](int index, int count) {
      const Range r = part(index, count);
      for (size_t i = 0; i < times; ++i) {
        sum += kernels.stream(buffer.data() + r.begin, static_cast<size_t>(r.end - r.begin));
      }
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    rates.push_back(static_cast<double>(size * times) / seconds / 1e9);
  }
  std::sort(rates.begin(), rates.end());
  return rates[kPasses / 2];
}

}  // namespace doppler
