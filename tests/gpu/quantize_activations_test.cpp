#include "gpu/ops/activations.h"

#include <cmath>
#include <iostream>

#include "gpu/cases/matmul_cases.h"
#include "gpu/gpu_test.h"

namespace doppler::gpu {
namespace {

TEST(QuantizeActivations, ScalesAndSumsAgreeWithTheTruth) {
  DOPPLER_NEED_DEVICE(device);
  if (!device.capabilities().int8_dot) GTEST_SKIP() << "no integer dot products";
  std::vector<KernelCase> cases;
  append_quantize_activations_cases(cases);
  for (const KernelCase& c : cases) {
    if (c.measure) continue;
    const CheckResult result = check_case(device, c);
    EXPECT_TRUE(result.pass) << c.name << ": element " << result.worst << " is " << result.got << ", expected "
                             << result.expected << " within " << result.bound;
  }
}

TEST(QuantizeActivations, ValuesAreWithinHalfAStepOfTheirOriginalAndPaddingIsZero) {
  DOPPLER_NEED_DEVICE(device);
  if (!device.capabilities().int8_dot) GTEST_SKIP() << "no integer dot products";
  for (size_t cols : {1, 33, 96, 160, 321}) {
    const size_t tokens = 5, padded = (cols + 63) / 64 * 64;
    CaseRandom random(cols);
    std::vector<float> x = random.floats(tokens * cols, -3, 3);
    x[0] = -1000;  // the largest of its piece
    x.resize((x.size() + 3) / 4 * 4, NAN);
    const QuantizedActivations out = {device.create_buffer("values", quantized_values_bytes(tokens, cols)),
                                      device.create_buffer("scales", quantized_scales_bytes(tokens, cols))};
    Recording recording(device, "quantize");
    record_quantize_activations(recording, "quantize", upload_floats(device, "x", x), tokens, cols, out);
    device.submit(recording);
    const std::vector<int8_t> q = read<int8_t>(device, out.values.buffer, tokens * padded);
    const std::vector<float> scales = read<float>(device, out.scales.buffer, tokens * padded / 16);
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t c = 0; c < padded; ++c) {
        const double scale = static_cast<double>(scales[(c / 32 * tokens + t) * 2]);
        const int got = q[(c / 16 * tokens + t) * 16 + c % 16];
        ASSERT_GE(got, -127);
        const double truth = c < cols ? static_cast<double>(x[t * cols + c]) : 0;
        ASSERT_LE(std::abs(scale * got - truth), scale * 0.5 * (1 + 0x1p-12)) << cols << ": " << t << ", " << c;
        if (c >= cols) {
          ASSERT_EQ(got, 0);
        }
      }
    }
  }
}

TEST(QuantizeActivations, NeedsIntegerDotProducts) {
  EXPECT_EQ(error_of([] { choose_quantize_activations(minimal_capabilities(), 32); }).code, ErrorCode::kInternal);
}

}  // namespace
}  // namespace doppler::gpu
