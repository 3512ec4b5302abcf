// Cases of what an adapter adds to a product: both thin products, over what lies there already.
#include <fmt/format.h>

#include <cmath>

#include "gpu/cases/kernel_cases.h"
#include "gpu/ops/elementwise.h"
#include "gpu/ops/lora.h"

namespace doppler::gpu {
namespace {

constexpr size_t kLanes = 64;  // threads that share a sum, at most

PreparedCase prepare_lora(Device& device, CaseUse use, size_t rows, size_t rank, size_t in, size_t out) {
  CaseRandom random(rows * 7 + rank * 31 + in);
  LoraPair pair{.rank = static_cast<int>(rank),
                .in = static_cast<int>(in),
                .out = static_cast<int>(out),
                .scale = 0.75f,
                .a = random.floats(rank * in, -1, 1),
                .b = random.floats(rank * out, -1, 1)};
  constexpr float kScale = -1.5f;
  const std::vector<float> x = random.floats(rows * in, -2, 2),
                           before = random.floats((rows * out + 3) / 4 * 4, -50, 50);
  PreparedCase p;
  p.out = device.create_buffer("out", before.size() * 4);
  p.recording = std::make_unique<Recording>(device, "lora");
  record_copy(*p.recording, "lora", upload_floats(device, "before", before), p.out, before.size() * 4);
  record_lora(*p.recording, "lora", upload_lora(device, "slot", pair), kScale, rows, upload_floats(device, "x", x),
              device.create_buffer("thin", rows * rank * 4), p.out);
  p.bytes = 4.0 * static_cast<double>(rank * (in + out) + rows * (in + 2 * rank + 2 * out));
  p.flops = 2.0 * static_cast<double>(rows * rank * (in + out));
  if (use != CaseUse::kCheck) return p;
  // A product and the additions to it round: those of a lane one after another, then those of the lanes.
  const double steps = static_cast<double>(in / kLanes + 1 + kLanes / 4 + 2);
  for (size_t row = 0; row < rows; ++row) {
    std::vector<double> thin(rank), error(rank);
    for (size_t r = 0; r < rank; ++r) {
      double sizes = 0;
      for (size_t i = 0; i < in; ++i) {
        const double product = static_cast<double>(pair.a[r * in + i]) * static_cast<double>(x[row * in + i]);
        thin[r] += product;
        sizes += std::abs(product);
      }
      error[r] = steps * kUlp * sizes;
    }
    for (size_t c = 0; c < out; ++c) {
      double sum = 0, off = 0;
      for (size_t r = 0; r < rank; ++r) {
        const auto b = static_cast<double>(pair.b[r * out + c]);
        sum += b * thin[r];
        off += std::abs(b) * error[r] + static_cast<double>(rank + 1) * kUlp * std::abs(b * thin[r]);
      }
      constexpr double kTimes = 0.75 * -1.5;
      const double value = static_cast<double>(before[row * out + c]) + kTimes * sum;
      p.expected.push_back(value);
      p.bound.push_back(std::abs(kTimes) * (off + 2 * kUlp * std::abs(sum)) + kUlp * std::abs(value));
    }
  }
  return p;
}

}  // namespace

void append_lora_cases(std::vector<KernelCase>& cases) {
  const auto add = [&](size_t rows, size_t rank, size_t in, size_t out, bool measure) {
    cases.push_back({"lora", fmt::format("{} x {} rank {} to {}", rows, in, rank, out), measure,
                     [=](Device& device, CaseUse use) { return prepare_lora(device, use, rows, rank, in, out); }});
  };
  for (const size_t rows : {1, 3, 70}) {
    for (const size_t rank : {1, 4, 16, 21}) {
      add(rows, rank, 100, 290, false);
      add(rows, rank, 64, 33, false);
      add(rows, rank, 1, 5, false);
    }
  }
  add(1, 16, 2048, 2048, true);
  add(512, 16, 2048, 2048, true);
}

}  // namespace doppler::gpu
