#include "gpu/ops/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>

#include "gpu/cases/matmul_cases.h"
#include "gpu/cases/weight_cases.h"
#include "gpu/gpu_test.h"

namespace doppler::gpu {
namespace {

void check_all(Device& device, const std::vector<KernelCase>& cases) {
  double worst = 0;
  std::string worst_name;
  int count = 0;
  for (const KernelCase& c : cases) {
    if (c.measure) continue;
    ++count;
    const CheckResult result = check_case(device, c);
    EXPECT_TRUE(result.pass) << c.name << " [" << result.variants << "]: element " << result.worst << " is "
                             << result.got << ", expected " << result.expected << " within " << result.bound;
    if (result.ratio > worst) {
      worst = result.ratio;
      worst_name = c.name;
    }
  }
  EXPECT_GT(count, 0);
  std::cout << "  " << count << " cases, worst error " << worst << " of its bound (" << worst_name << ")\n";
}

TEST(Matmul, AgreesWithTheTruth) {
  DOPPLER_NEED_DEVICE(device);
  std::vector<KernelCase> cases;
  append_matmul_cases(cases);
  check_all(device, cases);
}

// The kernels are those of the cases called "exact"; what is new is that they are chosen.
TEST(Matmul, AgreesWithTheTruthWithoutOptionalFeatures) {
  DOPPLER_NEED_DEVICE(device);
  Device plain({.plain = true});
  EXPECT_FALSE(plain.capabilities().int8_dot);
  std::vector<KernelCase> cases;
  append_matmul_cases(cases);
  std::erase_if(cases, [](const KernelCase& c) { return c.measure || c.name.find("q4_k 64x") != 0; });
  check_all(plain, cases);
}

TEST(Matmul, AgreesWithTheTruthInEveryTile) {
  DOPPLER_NEED_DEVICE(device);
  check_all(device, matmul_tile_cases(device.capabilities()));
}

// Every output is within half a step of x, piece by piece, of what f32 activations give.
TEST(Matmul, EightBitActivationsCostAtMostHalfAStepEach) {
  DOPPLER_NEED_DEVICE(device);
  if (!device.capabilities().int8_dot) GTEST_SKIP() << "no integer dot products";
  const size_t tokens = 6, rows = 40, cols = 1152;
  for (DType dtype : {DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) {
    const RandomMatrix matrix(dtype, rows, cols, 5);
    CaseRandom random(6);
    const std::vector<float> x = random.floats(tokens * cols, -2, 2);
    const Weight weight = upload_weight(device, matrix.tensor);
    Buffer plain = upload_floats(device, "x", x), out = device.create_buffer("out", tokens * rows * 4);
    const MatmulInput input = {plain,
                               {device.create_buffer("values", quantized_values_bytes(tokens, cols)),
                                device.create_buffer("scales", quantized_scales_bytes(tokens, cols))},
                               tokens};
    Recording recording(device, "matmul");
    record_quantize_activations(recording, "quantize", plain, tokens, cols, input.quantized);
    const MatmulChoice choice = choose_matmul(device.capabilities(), {dtype, tokens, rows, cols});
    EXPECT_EQ(choice.kernel, MatmulKernel::kInt8);
    record_matmul(recording, "matmul", choice, weight, input, {}, {out});
    device.submit(recording);
    const std::vector<float> got = read<float>(device, out, tokens * rows);
    for (size_t r = 0; r < rows; ++r) {
      const std::vector<float> w = matrix.row(static_cast<int64_t>(r));
      const std::vector<double> magnitudes = matrix.magnitudes(static_cast<int64_t>(r));
      for (size_t t = 0; t < tokens; ++t) {
        double truth = 0, bound = 0;
        for (size_t first = 0; first < cols; first += 32) {
          double peak = 0, reach = 0;
          for (size_t i = first; i < first + 32; ++i) {
            const double v = static_cast<double>(x[t * cols + i]);
            truth += static_cast<double>(w[i]) * v;
            bound += 100 * 0x1p-24 * magnitudes[i] * std::abs(v);
            peak = std::max(peak, std::abs(v));
            reach += std::abs(static_cast<double>(w[i]));
          }
          bound += peak / 254 * reach;
        }
        ASSERT_LE(std::abs(static_cast<double>(got[t * rows + r]) - truth), bound)
            << name_of(dtype) << " row " << r << " token " << t;
      }
    }
  }
}

TEST(Matmul, SplittingWithoutScratchIsRefused) {
  DOPPLER_NEED_DEVICE(device);
  const RandomMatrix matrix(DType::kF32, 8, 2048, 1);
  const Weight weight = upload_weight(device, matrix.tensor);
  MatmulChoice choice = choose_matmul(device.capabilities(), {DType::kF32, 2, 8, 2048, false, true});
  ASSERT_GT(choice.splits, 1u);
  Recording recording(device, "matmul");
  const Error error = error_of([&] {
    record_matmul(recording, "layer3.down", choice, weight, {device.create_buffer("x", 16384), {}, 2}, {},
                  {device.create_buffer("out", 64)});
  });
  EXPECT_EQ(error.code, ErrorCode::kInternal);
  EXPECT_EQ(error.where, "layer3.down");
}

// Prints the speed of every tile on the shapes of a model of 1B parameters: how the lists in matmul_choice.cpp are
// made.
//   gpu_tests --gtest_also_run_disabled_tests --gtest_filter='MatmulTuning.*'
TEST(MatmulTuning, DISABLED_ComparesTiles) {
  DOPPLER_NEED_DEVICE(device);
  Device fast({.unchecked = true});
  std::map<std::string, std::vector<std::pair<double, std::string>>> shapes;
  for (const KernelCase& c : matmul_tuning_cases(fast.capabilities())) {
    const size_t cut = c.name.find(' ', c.name.find(' ') + 1);
    const MeasureResult result = measure_case(fast, c);
    const double dispatches = static_cast<double>(result.dispatches);
    std::cout << fmt::format("{:8.2f} TOP/s {:9.1f} us  {}\n", result.gflop_per_s() / 1000,
                             result.ns * dispatches / 1000, c.name)
              << std::flush;
    shapes[c.name.substr(0, cut)].emplace_back(result.gflop_per_s() / 1000, c.name.substr(cut + 1));
  }
  for (auto& [shape, results] : shapes) {
    std::sort(results.rbegin(), results.rend());
    std::cout << "\nbest of " << shape << "\n";
    for (size_t i = 0; i < std::min<size_t>(5, results.size()); ++i) {
      std::cout << fmt::format("{:8.2f} TOP/s  {}\n", results[i].first, results[i].second);
    }
  }
}

}  // namespace
}  // namespace doppler::gpu
