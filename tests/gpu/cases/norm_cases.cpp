#include <fmt/format.h>

#include <cmath>

#include "gpu/cases/kernel_cases.h"
#include "gpu/ops/elementwise.h"

namespace doppler::gpu {
namespace {

PreparedCase prepare_norm(Device& device, CaseUse use, uint64_t groups, uint32_t width, float eps, float offset,
                          double magnitude) {
  CaseRandom random(groups * 7919 + width);
  std::vector<float> x = random.floats(groups * width, -magnitude, magnitude);
  for (uint32_t i = 0; i < width && groups > 1; ++i) x[i] = 0;  // a row of zeros: eps alone stands below the fraction
  const std::vector<float> weight = random.floats(width, -0.5, 2);
  PreparedCase p;
  p.out = device.create_buffer("out", x.size() * 4);
  p.recording = std::make_unique<Recording>(device, "norm");
  record_norm(*p.recording, "norm", upload_floats(device, "x", x), upload_floats(device, "weight", weight), p.out,
              {groups, width}, eps, offset);
  p.bytes = 8.0 * static_cast<double>(x.size());
  p.flops = 5.0 * static_cast<double>(x.size());
  if (use != CaseUse::kCheck) return p;
  for (uint64_t g = 0; g < groups; ++g) {
    double squares = 0;
    for (uint32_t i = 0; i < width; ++i) {
      const double v = static_cast<double>(x[g * width + i]);
      squares += v * v;
    }
    const double factor = 1 / std::sqrt(squares / width + static_cast<double>(eps));
    for (uint32_t i = 0; i < width; ++i) {
      const double gain = static_cast<double>(offset) + static_cast<double>(weight[i]);
      p.expected.push_back(static_cast<double>(x[g * width + i]) * factor * gain);
      // Positive terms: each of at most `width` roundings of the sum costs half an ulp, f16 again by the root; then
      // two divisions (2.5 ulp each) and a root (2 ulp), three products; `gain` is rounded once, absolutely.
      const double ulps = width / 4.0 + 12;
      p.bound.push_back(0x1p-23 *
                        (ulps * std::abs(p.expected.back()) +
                         std::abs(static_cast<double>(x[g * width + i])) * factor *
                             (std::abs(static_cast<double>(offset)) + std::abs(static_cast<double>(weight[i])))));
    }
  }
  return p;
}

}  // namespace

void append_norm_cases(std::vector<KernelCase>& cases) {
  auto add = [&](uint64_t groups, uint32_t width, float eps, float offset, double magnitude, bool measure) {
    cases.push_back({"norm", fmt::format("{}x{} offset {} up to {}", groups, width, offset, magnitude), measure,
                     [=](Device& device, CaseUse use) {
                       return prepare_norm(device, use, groups, width, eps, offset, magnitude);
                     }});
  };
  for (uint32_t width : {1u, 3u, 4u, 63u, 64u, 65u, 160u, 255u, 256u, 320u, 1000u, 1024u, 1152u, 2881u, 6912u}) {
    add(1, width, 1e-6f, 1, 1, false);
    add(5, width, 1e-5f, 0, 15000, false);
  }
  add(66000, 4, 1e-6f, 1, 1, false);  // more workgroups than one dimension holds
  add(64, 256, 1e-6f, 1, 30, false);  // heads
  add(1, 1152, 1e-6f, 1, 100, true);
  add(512, 1152, 1e-6f, 1, 100, true);
}

}  // namespace doppler::gpu
