#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gpu/cases/matmul_cases.h"
#include "gpu/cases/quantized_x.h"
#include "gpu/ops/activations.h"

namespace doppler::gpu {

QuantizedX quantize_x(const std::vector<float>& x, size_t tokens, size_t cols) {
  const size_t pieces = (cols + 31) / 32;
  QuantizedX out;
  out.values.resize(tokens * cols);
  out.uncertainty.resize(tokens * cols);
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t p = 0; p < pieces; ++p) {
      const size_t first = t * cols + p * 32, end = t * cols + std::min(cols, p * 32 + 32);
      double peak = 0, sum = 0, unsure = 0;
      for (size_t i = first; i < end; ++i) peak = std::max(peak, std::abs(static_cast<double>(x[i])));
      const double scale = peak < 1e-30 ? 0 : peak / 127;
      for (size_t i = first; i < end && scale > 0; ++i) {
        const double steps = static_cast<double>(x[i]) / scale, q = std::nearbyint(steps);
        // The kernel's reciprocal and product are off by a few units in the last place of up to 127.
        const bool close = std::abs(std::abs(steps - q) - 0.5) < 127 * 0x1p-20;
        out.values[i] = scale * q;
        out.uncertainty[i] = close ? scale : 0;
        sum += q;
        unsure += out.uncertainty[i];
      }
      out.scales.push_back(scale);
      out.sums.push_back(scale * sum);
      out.sum_uncertainty.push_back(unsure);
    }
  }
  return out;
}

namespace {

PreparedCase prepare_quantize(Device& device, size_t tokens, size_t cols, CaseUse use) {
  CaseRandom random(tokens * 7 + cols);
  std::vector<float> x = random.floats(tokens * cols, -1, 1);
  for (size_t i = 0; i < x.size(); ++i) {
    if (i / 32 % 5 == 3) x[i] = 0;      // whole pieces of zeros
    if (i / 32 % 7 == 2) x[i] *= 1e4f;  // pieces of other magnitudes
    if (i / 32 % 11 == 4) x[i] *= 1e-12f;
  }
  std::vector<float> padded = x;
  padded.resize((x.size() + 3) / 4 * 4, NAN);  // garbage after x shows a kernel that reads past its end
  PreparedCase p;
  p.out = device.create_buffer("scales", quantized_scales_bytes(tokens, cols));
  Buffer values = device.create_buffer("values", quantized_values_bytes(tokens, cols));
  p.recording = std::make_unique<Recording>(device, "quantize_activations");
  record_quantize_activations(*p.recording, "quantize", upload_floats(device, "x", padded), tokens, cols,
                              {values, p.out});
  p.bytes = static_cast<double>(4 * tokens * cols + quantized_values_bytes(tokens, cols) +
                                quantized_scales_bytes(tokens, cols));
  p.flops = 4.0 * static_cast<double>(tokens * cols);
  if (use == CaseUse::kMeasure) return p;
  const QuantizedX q = quantize_x(x, tokens, cols);
  const size_t pieces = (cols + 31) / 32, padded_pieces = (cols + 63) / 64 * 2;
  for (size_t piece = 0; piece < padded_pieces; ++piece) {
    for (size_t t = 0; t < tokens; ++t) {
      const bool past = piece >= pieces;
      const double scale = past ? 0 : q.scales[t * pieces + piece], sum = past ? 0 : q.sums[t * pieces + piece];
      p.expected.insert(p.expected.end(), {scale, sum});
      // A division is good to 2.5 units in the last place.
      p.bound.push_back(scale * 0x1p-21);
      p.bound.push_back(std::abs(sum) * 0x1p-20 + (past ? 0 : q.sum_uncertainty[t * pieces + piece]));
    }
  }
  return p;
}

}  // namespace

void append_quantize_activations_cases(std::vector<KernelCase>& cases) {
  auto add = [&](size_t tokens, size_t cols, bool measure) {
    cases.push_back({"quantize_activations", fmt::format("{}x{}", tokens, cols), measure,
                     [=](Device& device, CaseUse use) { return prepare_quantize(device, tokens, cols, use); }, true});
  };
  for (size_t cols : {1, 31, 32, 33, 64, 96, 160, 257, 320, 1152}) {
    for (size_t tokens : {1, 2, 7, 33, 130}) add(tokens, cols, false);
  }
  for (size_t cols : {1152, 6912}) add(512, cols, true);
}

}  // namespace doppler::gpu
