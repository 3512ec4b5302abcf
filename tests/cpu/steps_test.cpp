// Every operation on every instruction set: cases/step_cases.h.
#include "cpu/cases/step_cases.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "cpu/isa.h"
#include "model/plan.h"

namespace doppler::cpu {
namespace {

class StepTest : public ::testing::TestWithParam<const Kernels*> {};

TEST_P(StepTest, AgreesWithItsReferenceOperation) {
  std::set<std::string> operations;
  for (const StepCase& c : step_cases(*GetParam(), true)) {
    for (const StepResult& result : check_steps(c)) {
      operations.insert(result.operation);
      EXPECT_TRUE(result.pass()) << c.config.id << " " << result.step << " " << name_of(c.type) << " blocks of "
                                 << c.block << ": error " << result.error << ", bound " << result.bound;
    }
  }
  EXPECT_EQ(operations.size(), std::variant_size_v<Operation>) << "an operation that no model has";
}

// The few see what they are there for, a function of a table that computes something else, and leave nothing out.
TEST(StepCheck, NamesTheOperationWhoseKernelIsWrong) {
  Kernels broken = kPortableKernels;
  broken.softcap = [](const float* x, float* out, int n, float cap) {
    for (int i = 0; i < n; ++i) out[i] = cap * std::tanh(x[i] / cap) * 1.001f;
  };
  broken.formats[kFormatMXFP4].dot = [](const void* weights, size_t stride, int rows, const void* x, int k,
                                        float* out) {
    kPortableKernels.formats[kFormatMXFP4].dot(weights, stride, rows, x, k, out);
    for (int r = 0; r < rows; ++r) out[r] *= 1.01f;
  };
  std::set<std::string> operations, types, wrong;
  for (const StepCase& c : step_cases(broken, false)) {
    types.emplace(name_of(c.type));
    for (const StepResult& result : check_steps(c)) {
      operations.insert(result.operation);
      if (!result.pass()) wrong.insert(result.operation + (c.type == DType::kMXFP4 ? " mxfp4" : ""));
    }
  }
  EXPECT_EQ(operations.size(), std::variant_size_v<Operation>);
  EXPECT_EQ(types.size(), size_t{kFormatCount});
  EXPECT_EQ(wrong, (std::set<std::string>{"softcap", "softcap mxfp4", "matmul mxfp4", "expert_matmul mxfp4"}));
}

INSTANTIATE_TEST_SUITE_P(Kernels, StepTest, ::testing::ValuesIn(available_kernels()),
                         [](const auto& kernels) { return std::string(kernels.param->name); });

}  // namespace
}  // namespace doppler::cpu
