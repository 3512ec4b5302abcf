// How many million weights per second each format is written and read at, on one thread and on two.
//   quantize_bench [rows] [cols]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "base/threads.h"
#include "convert/quantize.h"
#include "convert/quantize_kernels.h"
#include "format/decode.h"

namespace {

using namespace doppler;

// Bell-shaped weights of the size real ones have: the sum of four uniform numbers.
std::vector<float> make_weights(size_t count) {
  std::vector<float> weights(count);
  uint64_t state = 88172645463325252u;
  for (float& w : weights) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    int sum = 0;
    for (int part = 0; part < 4; ++part) sum += static_cast<int>(state >> (16 * part) & 0xffff) - 32768;
    w = static_cast<float>(sum) * 5e-7f;
  }
  return weights;
}

template <typename Work>
double best_seconds(Work&& work) {
  double best = 1e9;
  for (int run = 0; run < 5; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  const size_t rows = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1024;
  const size_t cols = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1152;
  const std::vector<float> weights = make_weights(rows * cols);
  std::vector<float> decoded(rows * cols);
  const double millions = static_cast<double>(rows * cols) * 1e-6;
  ThreadPool one(1), two(2);

  fmt::print("{} x {} weights, {} kernels, M weights/s (best of 5)\n", rows, cols, quant::kernels().front().name);
  fmt::print("{:8} {:>14} {:>14} {:>14}\n", "type", "write, 1 thread", "2 threads", "read, 1 thread");
  double q4_k_both = 0, q6_k_both = 0;
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType type = static_cast<DType>(i);
    if (!can_quantize(type)) continue;
    std::vector<std::byte> bytes(rows * row_bytes(type, cols));
    const double single =
        millions / best_seconds([&] { quantize_rows(type, weights.data(), bytes.data(), rows, cols, one); });
    const double both =
        millions / best_seconds([&] { quantize_rows(type, weights.data(), bytes.data(), rows, cols, two); });
    const double read = millions / best_seconds([&] {
                          for (size_t r = 0; r < rows; ++r) {
                            decode_row(type, &bytes[r * row_bytes(type, cols)], &decoded[r * cols], cols);
                          }
                        });
    fmt::print("{:8} {:15.1f} {:14.1f} {:14.1f}\n", name_of(type), single, both, read);
    if (type == DType::kQ4_K) q4_k_both = both;
    if (type == DType::kQ6_K) q6_k_both = both;
  }
  // A mixture spends its time in both: 30 % of the weights in Q6_K is more than q4_k_m has in most models.
  fmt::print("mixture of 70 % Q4_K and 30 % Q6_K, 2 threads: {:.1f}\n", 1 / (0.7 / q4_k_both + 0.3 / q6_k_both));
  return 0;
}
