#include "import/as_q8_0.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "base/threads.h"
#include "format/decode.h"

namespace doppler {
namespace {

// The nearest whole number, ties to even, for |x| < 2^22: unlike the library's function a compiler makes vectors of it.
float nearest(float x) {
  constexpr float kShift = 12582912;  // 1.5 · 2^23
  return (x + kShift) - kShift;
}

void levels_to_q8_0(DType type, const std::byte* row, const float* values, size_t cols, std::byte* out) {
  const auto block_bytes = static_cast<size_t>(info(type).block_bytes);
  for (size_t b = 0; b < cols / 32; ++b, out += 34) {
    uint16_t half;
    std::memcpy(&half, row + b * block_bytes, sizeof half);
    const float scale = f16_to_f32(half);
    std::memcpy(out, &half, sizeof half);
    int8_t levels[32] = {};
    for (size_t i = 0; scale != 0 && i < 32; ++i) levels[i] = static_cast<int8_t>(nearest(values[32 * b + i] / scale));
    std::memcpy(out + 2, levels, sizeof levels);
  }
}

class Q8Source : public TensorSource {
 public:
  explicit Q8Source(const Tensor& tensor) : tensor_(tensor) {}

  uint64_t size() const override { return static_cast<uint64_t>(tensor_.rows()) * stride(); }

  void read(uint64_t offset, std::span<std::byte> out) const override {
    const auto first = static_cast<int64_t>(offset / stride());
    const auto count = static_cast<long>(out.size() / stride());
    const auto cols = static_cast<size_t>(tensor_.cols());
    constexpr size_t kLittle = 1 << 18;  // weights that one thread has done before others begin
    ThreadPool pool(cols * static_cast<size_t>(count) < kLittle ? 1 : 0);
    std::atomic<int64_t> faulty{-1};
    pool.run([&](int index, int threads) {
      std::vector<float> values(cols);
      const Range rows = split_range(count, index, threads);
      for (long r = rows.begin; r < rows.end; ++r) {
        std::byte* to = out.data() + static_cast<size_t>(r) * stride();
        if (!row_as_q8_0(tensor_.dtype, tensor_.row(first + r), cols, values.data(), to)) faulty = first + r;
      }
    });
    if (faulty < 0) return;
    fail({.code = ErrorCode::kFormat,
          .what = "a weight is not a finite number",
          .where = fmt::format("{}, row {}", tensor_.name, faulty.load()),
          .todo = "The file is damaged; fetch it again"});
  }

 private:
  size_t stride() const { return row_bytes(DType::kQ8_0, static_cast<size_t>(tensor_.cols())); }
  Tensor tensor_;
};

}  // namespace

bool is_scaled_levels(DType type) { return type == DType::kQ4_0 || type == DType::kQ5_0 || type == DType::kIQ4_NL; }

void round_to_q8_0(const float* values, size_t cols, std::byte* out) {
  for (size_t b = 0; b < cols / 32; ++b, values += 32, out += 34) {
    float largest = 0;
    for (int i = 0; i < 32; ++i) largest = std::max(largest, std::abs(values[i]));
    const uint16_t half = f32_to_f16(std::min(largest / 127, 65504.f));
    const float steps = f16_to_f32(half) > 0 ? 1 / f16_to_f32(half) : 0;
    std::memcpy(out, &half, sizeof half);
    int8_t levels[32];
    for (int i = 0; i < 32; ++i) levels[i] = static_cast<int8_t>(nearest(std::clamp(values[i] * steps, -127.f, 127.f)));
    std::memcpy(out + 2, levels, sizeof levels);
  }
}

bool row_as_q8_0(DType type, const std::byte* row, size_t cols, float* values, std::byte* out) {
  decode_row(type, row, values, cols);
  if (!all_finite(values, cols)) return false;
  if (is_scaled_levels(type)) {
    levels_to_q8_0(type, row, values, cols, out);
  } else {
    round_to_q8_0(values, cols, out);
  }
  return true;
}

Tensor read_as_q8_0(const Tensor& tensor) {
  return {tensor.name, DType::kQ8_0, tensor.shape, {}, std::make_shared<Q8Source>(tensor)};
}

}  // namespace doppler
