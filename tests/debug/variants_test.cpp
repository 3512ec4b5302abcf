// Each variant of a backend's kernels against plain code: a wrong one is found by its name, and no other is accused.
#include "debug/variants.h"

#include <gtest/gtest.h>

#include "cpu/cpu_executor.h"
#include "cpu/isa.h"
#include "engine/backend.h"
#include "gpu/run/gpu_executor.h"
#include "gpu/webgpu/capabilities.h"
#include "support/software_gpu.h"

namespace doppler {
namespace {

constexpr int kContext = 32;

struct Tiny {
  LoadedModel model = LoadedModel::load(DOPPLER_SOURCE_DIR "/models/tiny");
  Stages reference;
  DebuggedModel debugged{model.config, model.plan, model.weights, kContext};
  Bounds bounds = bounds_for(model.weights, true);

  Tiny() {
    const std::vector<int32_t> prompt = {2, 513, 665, 442, 365, 992, 418};
    reference = capture_run(*make_executor(model, "ref", {.context = kContext}), model.plan, prompt, {});
  }
  std::vector<VariantVerdict> tried(const MakeExecutor& make, const KernelWishes& only) const {
    return try_variants(make, only, reference, debugged, bounds);
  }
};

const Tiny& tiny() {
  static const Tiny model;
  return model;
}

const cpu::Kernels& best_cpu() { return *cpu::available_kernels().back(); }

// Attention with the values of every second dim subtracted.
void wrong_attend(const cpu::QueryTile& q, const cpu::KeyTile* tiles, int count, const cpu::SoftmaxState& state,
                  float* scratch, const cpu::ReadAhead* next) {
  best_cpu().attend(q, tiles, count, state, scratch, next);
  for (int i = 0; i < q.rows * q.dim; i += 2) state.mixed[i] = -state.mixed[i];
}

TEST(Variants, AWrongOneOfTheCpuIsFoundByItsName) {
  static const cpu::Kernels wrong = [] {
    cpu::Kernels kernels = best_cpu();
    kernels.attend = wrong_attend;
    return kernels;
  }();
  const LoadedModel& model = tiny().model;
  const auto make = [&](const KernelWishes& wishes) {
    const bool planted = wish_for(wishes, "attention") == best_cpu().name;
    ExecutorOptions options{.context = kContext, .threads = 1};
    if (!planted) options.kernels = wishes;
    return make_cpu_executor(model.config, model.plan, model.weights, options,
                             CpuTuning{.kernels = planted ? &wrong : nullptr});
  };
  const std::vector<VariantVerdict> verdicts = tiny().tried(make, {});
  EXPECT_EQ(verdicts.size(), 1 + cpu::kernel_kinds().size() * cpu::available_kernels().size());
  int found = 0;
  for (const VariantVerdict& v : verdicts) {
    const bool planted = v.kind == "attention" && v.variant == best_cpu().name;
    EXPECT_EQ(v.first_bad, planted ? "layer0.attention" : "") << v.kind << "=" << v.variant << ": " << v.cause;
    EXPECT_GT(v.stages, 0u);
    found += planted;
  }
  EXPECT_EQ(found, 1);
  const std::string summary = variants_summary(verdicts);
  EXPECT_EQ(summary.find(std::string("attention=") + best_cpu().name + " differs, first at layer0.attention"), 0u)
      << summary;
}

class VariantsOfAGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = testing::missing_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
  // `lanes`: those that the device's subgroups are believed to have; 0: as it says.
  static MakeExecutor makes(uint32_t lanes) {
    return [lanes](const KernelWishes& wishes) {
      const LoadedModel& model = tiny().model;
      const ExecutorOptions options{.context = kContext, .checked = true, .kernels = wishes};
      GpuTuning tuning;
      if (lanes > 0) {
        tuning.believed = [lanes](gpu::Capabilities& c) {
          c.subgroups = true;
          c.subgroup_min = c.subgroup_max = c.subgroup_size = lanes;
        };
      }
      return make_gpu_executor(model.config, model.plan, model.weights, options, tuning);
    };
  }
};

// Subgroups of 4 lanes that kernels take for 8: sums of teams lack half of their parts.
TEST_F(VariantsOfAGpu, AWrongOneIsFoundByItsName) {
  const std::vector<VariantVerdict> verdicts = tiny().tried(makes(8), {{"matvec", "int8"}});
  ASSERT_EQ(verdicts.size(), 3u) << "what is chosen, int8.subgroup and int8.plain";
  for (const VariantVerdict& v : verdicts) {
    if (v.variant == "int8.plain") {
      EXPECT_EQ(v.first_bad, "") << v.cause;
      continue;
    }
    const Step* step = tiny().model.plan.find(v.first_bad);
    ASSERT_TRUE(step) << v.variant;
    EXPECT_TRUE(std::holds_alternative<MatMul>(step->op)) << v.first_bad;
    EXPECT_NE(v.kernel.find("subgroup"), std::string::npos) << v.kernel;
  }
  EXPECT_NE(variants_summary(verdicts).find("matvec=int8.subgroup differs, first at layer"), std::string::npos);
}

}  // namespace
}  // namespace doppler
