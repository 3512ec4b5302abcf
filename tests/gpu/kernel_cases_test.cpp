// Every kernel against the truth, over shapes, remainders and types: once as this device likes it, once without any
// optional feature.
#include "gpu/cases/kernel_cases.h"

#include <algorithm>
#include <iostream>

#include "gpu/gpu_test.h"

namespace doppler::gpu {
namespace {

// Every `step`-th case of an op.
void check_all(Device& device, const std::string& op, int step) {
  double worst = 0;
  std::string worst_name;
  int count = 0, number = 0;
  for (const KernelCase& c : kernel_cases(device.capabilities())) {
    if (c.op != op || c.measure || number++ % step != 0) continue;
    ++count;
    const CheckResult result = check_case(device, c);
    EXPECT_TRUE(result.pass) << c.op << " " << c.name << " [" << result.variants << "]: element " << result.worst
                             << " is " << result.got << ", expected " << result.expected << " within " << result.bound;
    if (result.ratio > worst) {
      worst = result.ratio;
      worst_name = c.name;
    }
  }
  EXPECT_GT(count, 0);
  std::cout << "  " << op << ": " << count << " cases, worst error " << worst << " of its bound (" << worst_name
            << ")\n";
}

class KernelCases : public testing::TestWithParam<const char*> {};

TEST_P(KernelCases, AgreeWithTheTruth) {
  DOPPLER_NEED_DEVICE(device);
  check_all(device, GetParam(), 1);
}

TEST_P(KernelCases, AgreeWithTheTruthWithoutOptionalFeatures) {
  DOPPLER_NEED_DEVICE(device);
  static Device plain({.plain = true});
  EXPECT_FALSE(plain.capabilities().subgroups);
  // All cases of the ops whose choice looks at the features; a sample of the others.
  const std::string op = GetParam();
  check_all(plain, op, op == "norm" ? 1 : op == "experts" ? 4 : 9);
}

INSTANTIATE_TEST_SUITE_P(Ops, KernelCases,
                         testing::Values("add", "copy", "glu", "norm", "embed", "matvec", "project_norm", "route",
                                         "combine", "experts", "expert_matmul"),
                         [](const auto& op) { return std::string(op.param); });

TEST(KernelCaseList, HasNoOpWithoutATest) {
  // The others are gone through by matmul_test, quantize_activations_test and attention_test.
  const std::vector<std::string> tested = {"add",
                                           "copy",
                                           "glu",
                                           "norm",
                                           "embed",
                                           "matvec",
                                           "project_norm",
                                           "route",
                                           "combine",
                                           "experts",
                                           "expert_matmul",
                                           "matmul",
                                           "quantize_activations",
                                           "rope_store",
                                           "attention_prefill",
                                           "attention_decode",
                                           "attention_fused",
                                           "argmax",
                                           "sample"};
  Capabilities all = minimal_capabilities();
  all.int8_dot = true;
  for (const KernelCase& c : kernel_cases(all)) {
    EXPECT_NE(std::find(tested.begin(), tested.end(), c.op), tested.end()) << c.op;
  }
}

}  // namespace
}  // namespace doppler::gpu
