#include <fmt/format.h>

#include <cmath>

#include "gpu/cases/weight_cases.h"
#include "gpu/ops/elementwise.h"

namespace doppler::gpu {
namespace {

PreparedCase prepare_embed(Device& device, CaseUse use, DType dtype, int64_t rows, int64_t cols, size_t count,
                           float scale, uint64_t max_part_bytes) {
  const RandomMatrix matrix(dtype, rows, cols, static_cast<uint64_t>(cols) + 3);
  CaseRandom random(count);
  std::vector<uint32_t> tokens(count);
  for (uint32_t& token : tokens) token = static_cast<uint32_t>(random.bits() % static_cast<uint64_t>(rows));
  tokens.front() = 0;
  tokens.back() = static_cast<uint32_t>(rows - 1);
  Buffer ids = device.create_buffer("tokens", count * 4);
  write<uint32_t>(device, ids, tokens);
  PreparedCase p;
  const size_t width = static_cast<size_t>(cols);
  p.out = device.create_buffer("out", count * width * 4);
  p.recording = std::make_unique<Recording>(device, "embed");
  const Weight weight = upload_weight(device, matrix.tensor, max_part_bytes);
  record_embed(*p.recording, "embed", weight, ids, p.out, count, scale);
  p.bytes = static_cast<double>(count) * (static_cast<double>(weight.stride) + 4.0 * static_cast<double>(width));
  p.flops = 2.0 * static_cast<double>(count * width);
  if (use != CaseUse::kCheck) return p;
  for (uint32_t token : tokens) {
    const std::vector<float> values = matrix.row(token);
    const std::vector<double> magnitudes = matrix.magnitudes(token);
    for (size_t i = 0; i < width; ++i) {
      const double factor = static_cast<double>(scale);
      p.expected.push_back(static_cast<double>(values[i]) * factor);
      // Four roundings on our side (two products, a difference, the scale), as many in ggml's decoder.
      p.bound.push_back(8 * 0x1p-24 * magnitudes[i] * std::abs(factor));
    }
  }
  return p;
}

}  // namespace

void append_embed_cases(std::vector<KernelCase>& cases) {
  auto add = [&](DType dtype, int64_t rows, int64_t cols, size_t count, uint64_t most, bool measure) {
    cases.push_back(
        {"embed", fmt::format("{} {}x{} {} tokens{}", kernel_name(dtype), rows, cols, count, most != 0 ? " split" : ""),
         measure, [=](Device& device, CaseUse use) {
           return prepare_embed(device, use, dtype, rows, cols, count, 33.9411255f, most);
         }});
  };
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) {
    for (int64_t cols : {1, 31, 33, 160, 256, 320, 1000, 1152}) add(dtype, 37, cols, 11, 0, false);
    add(dtype, 37, 320, 40, 8192, false);  // several parts
    add(dtype, 4096, 1152, 512, 0, true);
  }
}

}  // namespace doppler::gpu
