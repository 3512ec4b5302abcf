#include "gpu/ops/activations.h"

#include <cmath>

#include "base/half.h"
#include "gpu/cases/kernel_cases.h"
#include "gpu/gpu_test.h"

namespace doppler::gpu {
namespace {

TEST(ActivationsToF16, ValuesKeepElevenBitsWhateverTheirMagnitudeAndPaddingIsZero) {
  DOPPLER_NEED_DEVICE(device);
  // Of a token each: a residual stream of usual size, beyond f16, below it, at both ends of f32, nothing at all.
  const double magnitudes[] = {3, 2e6, 1e-9, 3e38, 1e-25, 0};
  const size_t tokens = std::size(magnitudes);
  for (size_t cols : {1, 33, 96, 321, 1284}) {
    const size_t padded = (cols + 63) / 64 * 64;
    CaseRandom random(cols);
    std::vector<float> x = random.floats(tokens * cols, -1, 1);
    for (size_t t = 0; t < tokens; ++t) {
      x[t * cols] = -1;  // the largest of its token
      for (size_t c = 0; c < cols; ++c) x[t * cols + c] *= static_cast<float>(magnitudes[t]);
    }
    x.resize((x.size() + 3) / 4 * 4, NAN);  // garbage after x shows a kernel that reads past its end
    const F16Activations out = {device.create_buffer("values", f16_values_bytes(tokens, cols)),
                                device.create_buffer("scales", f16_scales_bytes(tokens))};
    Recording recording(device, "to f16");
    record_activations_to_f16(recording, "to f16", upload_floats(device, "x", x), tokens, cols, out);
    device.submit(recording);
    const std::vector<uint16_t> h = read<uint16_t>(device, out.values.buffer, tokens * padded);
    const std::vector<float> scales = read<float>(device, out.scales.buffer, tokens);
    for (size_t t = 0; t < tokens; ++t) {
      const double scale = static_cast<double>(scales[t]);
      if (magnitudes[t] > 0) {
        const double largest = std::abs(static_cast<double>(f16_to_f32(h[t * padded])));
        EXPECT_GE(largest, 0x1p14) << magnitudes[t];
        EXPECT_LE(largest, 0x1p15) << magnitudes[t];
      }
      for (size_t c = 0; c < padded; ++c) {
        const double truth = c < cols ? static_cast<double>(x[t * cols + c]) : 0;
        const double got = scale * static_cast<double>(f16_to_f32(h[t * padded + c]));
        ASSERT_LE(std::abs(got - truth), std::abs(truth) * 0x1p-11 + magnitudes[t] * 0x1p-39)
            << cols << " columns of " << magnitudes[t] << ": " << t << ", " << c;
      }
    }
  }
}

}  // namespace
}  // namespace doppler::gpu
