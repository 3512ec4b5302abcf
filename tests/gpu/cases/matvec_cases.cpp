#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gpu/cases/weight_cases.h"
#include "gpu/ops/matvec.h"

namespace doppler::gpu {
namespace {

struct MatvecCase {
  DType dtype;
  int64_t rows, cols;
  uint32_t columns = 1;
  bool bias = false;
  uint64_t max_part_bytes = 0;
  std::vector<std::pair<std::string, double>> constants = {};  // other than the choice: lanes, groups, rows, split
  bool exact = false;
};

// The kernel's sum has at most this many roundings on the way of one term: 8 products and sums in a quad and its piece,
// the scale, the turns over the pieces, the lanes of a row, ggml's own decoding.
double roundings(const MatvecCase& c) { return 32 + std::ceil(static_cast<double>(c.cols) / 32); }

// For every element of x [columns, cols], the step of its piece of 32 as int8.
std::vector<double> int8_steps(const std::vector<float>& x, size_t cols) {
  std::vector<double> steps(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t row = i / cols * cols, first = row + (i - row) / 32 * 32, end = std::min(first + 32, row + cols);
    double most = 0;
    for (size_t j = first; j < end; ++j) most = std::max(most, std::abs(static_cast<double>(x[j])));
    steps[i] = most / 127;
  }
  return steps;
}

PreparedCase prepare_matvec_check(Device& device, const MatvecCase& c) {
  const RandomMatrix matrix(c.dtype, c.rows, c.cols, static_cast<uint64_t>(c.rows * 31 + c.cols));
  CaseRandom random(static_cast<uint64_t>(c.cols));
  const size_t rows = static_cast<size_t>(c.rows), cols = static_cast<size_t>(c.cols);
  const std::vector<float> x = random.floats(cols * c.columns, -100, 100), bias = random.floats(rows, -10, 10);
  PreparedCase p;
  p.out = device.create_buffer("y", rows * c.columns * 4);
  p.recording = std::make_unique<Recording>(device, "matvec");
  const Weight weight = upload_weight(device, matrix.tensor, c.max_part_bytes);
  // Garbage after x shows a kernel that reads past its end.
  std::vector<float> padded = x;
  padded.resize((x.size() + 3) / 4 * 4, NAN);
  Variant variant = choose_matvec(device.capabilities(),
                                  {c.dtype, static_cast<uint64_t>(c.rows), static_cast<uint64_t>(c.cols), c.exact});
  const bool int8 = variant.name().find("matvec_x=int8") != std::string::npos;
  for (const auto& [name, value] : c.constants) {
    for (auto& [known, chosen] : variant.constants) {
      if (known == name) chosen = value;
    }
  }
  record_matvec(*p.recording, "matvec", variant, weight, upload_floats(device, "x", padded),
                c.bias ? BoundBuffer(upload_floats(device, "bias", bias)) : BoundBuffer(), p.out, c.columns);
  const std::vector<double> steps = int8_steps(x, cols);
  for (uint32_t column = 0; column < c.columns; ++column) {
    for (size_t r = 0; r < rows; ++r) {
      const std::vector<float> w = matrix.row(static_cast<int64_t>(r));
      const std::vector<double> magnitudes = matrix.magnitudes(static_cast<int64_t>(r));
      double sum = c.bias ? static_cast<double>(bias[r]) : 0, magnitude = std::abs(sum), quantisation = 0;
      for (size_t i = 0; i < cols; ++i) {
        const double v = static_cast<double>(x[column * cols + i]);
        sum += static_cast<double>(w[i]) * v;
        magnitude += magnitudes[i] * std::abs(v);
        // x as int8: off by at most half a step (and the roundings of the step), a step being max|piece| / 127.
        if (int8) quantisation += std::abs(static_cast<double>(w[i])) * steps[column * cols + i] * 0.50001;
      }
      p.expected.push_back(sum);
      p.bound.push_back(roundings(c) * 0x1p-24 * magnitude + quantisation);
    }
  }
  return p;
}

// Copies of the matrix together larger than any cache, read one after the other, as the layers of a model are.
PreparedCase prepare_matvec_measure(Device& device, const MatvecCase& c) {
  const RandomMatrix matrix(c.dtype, c.rows, c.cols, 1);
  const size_t rows = static_cast<size_t>(c.rows), cols = static_cast<size_t>(c.cols);
  CaseRandom random(1);
  Buffer x = upload_floats(device, "x", random.floats(cols * c.columns, -1, 1));
  PreparedCase p;
  p.out = device.create_buffer("y", rows * c.columns * 4);
  p.recording = std::make_unique<Recording>(device, "matvec");
  const uint64_t enough = device.capabilities().software ? 8u << 20 : 384u << 20;
  const Weight first = upload_weight(device, matrix.tensor);
  const uint64_t copies = std::clamp<uint64_t>(enough / first.bytes(), 1, 64);
  Recording copying(device, "copies");
  for (uint64_t i = 0; i < copies; ++i) {
    Weight weight = first;
    for (WeightPart& part : weight.parts) {
      if (i == 0) continue;
      const Buffer original = part.buffer;
      part.buffer = device.create_buffer("copy", original.size());
      copying.copy("copy", original, 0, part.buffer, 0, original.size());
    }
    record_matvec(*p.recording, "matvec", weight, x, {}, p.out, c.columns);
  }
  if (copies > 1) device.submit(copying);
  device.wait();
  p.bytes = static_cast<double>(copies) * (static_cast<double>(first.bytes()) + 4.0 * static_cast<double>(rows + cols));
  p.flops = static_cast<double>(copies) * 2.0 * static_cast<double>(rows * cols) * c.columns;
  return p;
}

}  // namespace

void append_matvec_cases(std::vector<KernelCase>& cases) {
  auto add = [&](MatvecCase c, const std::string& note) {
    cases.push_back({"matvec", fmt::format("{} {}x{}{}", kernel_name(c.dtype), c.rows, c.cols, note), false,
                     [c](Device& device, CaseUse) { return prepare_matvec_check(device, c); }});
  };
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) {
    for (int64_t cols : {5, 33, 160, 320, 1152, 1154}) add({dtype, 19, cols}, "");
    if (dtype == DType::kQ4_K || dtype == DType::kQ6_K) {
      for (int64_t cols : {1, 31, 32, 255, 256, 257, 6912}) add({dtype, 19, cols}, "");
    }
    add({dtype, 1, 1152}, "");
    if (dtype == DType::kQ8_0 || dtype == DType::kQ4_K || dtype == DType::kQ6_K) {
      for (int64_t cols : {33, 320, 1152}) add({dtype, 19, cols, 1, false, 0, {}, true}, " exact");
    }
    add({dtype, 2061, 64}, "");
    add({dtype, 3, 8448}, " several turns");
    add({dtype, 33, 320, 1, true}, " bias");
    add({dtype, 21, 160, 5, true}, " 5 columns");
    add({dtype, 21, 37, 3, true}, " 3 columns");
    add({dtype, 50, 1152, 1, true, 16384}, " split");
    // Shapes of the work other than this machine's choice.
    for (double rows : {1, 2, 8}) {
      add({dtype, 77, 1152, 1, false, 0, {{"lanes", 36}, {"groups", 3}, {"rows", rows}, {"split", 4}}},
          fmt::format(" rows={}", rows));
    }
    add({dtype, 13, 1152, 1, false, 0, {{"lanes", 7}, {"groups", 5}, {"rows", 4}, {"split", 1}}}, " lanes=7");
    add({dtype, 13, 1152, 1, false, 0, {{"lanes", 64}, {"groups", 2}, {"rows", 2}, {"split", 16}}}, " lanes=64");
  }
  for (int64_t cols : {5, 33, 320, 1154}) add({DType::kMXFP4, 19, cols}, "");
  auto measure = [&](DType dtype, int64_t rows, int64_t cols) {
    const MatvecCase c = {dtype, rows, cols};
    cases.push_back({"matvec", fmt::format("{} {}x{}", kernel_name(dtype), rows, cols), true,
                     [c](Device& device, CaseUse) { return prepare_matvec_measure(device, c); }});
  };
  for (DType dtype : {DType::kQ4_K, DType::kQ6_K, DType::kQ8_0, DType::kBF16, DType::kF16, DType::kF32}) {
    measure(dtype, 1152, 6912);
    measure(dtype, 6912, 1152);
  }
  measure(DType::kQ4_K, 1536, 1152);
  measure(DType::kQ4_K, 1152, 1024);
  measure(DType::kQ4_K, 13824, 1152);
  measure(DType::kQ4_K, 262144, 1152);
  measure(DType::kQ6_K, 262144, 1152);
  measure(DType::kQ8_0, 262144, 1152);
}

}  // namespace doppler::gpu
