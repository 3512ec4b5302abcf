// The same answer whoever is beside you (support/crowd.h).
#include <gtest/gtest.h>

#include "cpu/cpu_executor.h"
#include "cpu/isa.h"
#include "random_model.h"
#include "ref/ref_executor.h"
#include "support/crowd.h"
#include "support/random_adapters.h"

namespace doppler {
namespace {

constexpr int kContext = 192;

ModelConfig windows_config() {
  ModelConfig c = testing::odd_config();
  c.layers = {{7, 1}, {16, 1}, {40, 0}, {0, 1}};
  return c;
}

struct Model {
  const char* name;
  ModelConfig (*config)();
};
const Model kModels[] = {{"quirky", testing::quirky_config},
                         {"windows", windows_config},
                         {"experts", testing::expert_config},
                         {"multiplied", testing::multiplied_config},
                         {"sparse", testing::sparse_config},
                         {"odd_experts", testing::odd_expert_config},
                         {"conv", testing::conv_config},
                         {"delta", testing::delta_config},
                         {"delta_experts", testing::delta_expert_config},
                         {"layer_inputs", testing::layer_input_config},
                         {"beside", testing::beside_config}};

class BatchTest : public ::testing::TestWithParam<Model> {};

TEST_P(BatchTest, AnAnswerDoesNotDependOnWhatRunsBesideIt) {
  int found = 0;
  for (const DType type : {DType::kBF16, DType::kQ4_K, DType::kQ6_K}) {
    const RandomModel m(GetParam().config(), type);
    for (const cpu::Kernels* kernels : cpu::available_kernels()) {
      for (const int block : {5, 17, 64}) {
        SCOPED_TRACE(::testing::Message() << name_of(type) << " " << kernels->name << ", blocks of " << block);
        const auto executor = make_cpu_executor(
            m.config, m.plan, m.weights, {.context = kContext, .threads = 2, .block = block, .cache_memory = 64 << 20},
            {.kernels = kernels});
        Crowd crowd(*executor, static_cast<uint64_t>(block));
        crowd.prepare([&](int count, uint64_t seed) { return m.tokens(count, seed); }, 12);
        crowd.run_all();
        if (HasFatalFailure()) return;
        found += crowd.found;
      }
    }
  }
  EXPECT_GT(found, 100) << "prefixes are found again";
}

TEST_P(BatchTest, NorInTheReference) {
  const RandomModel m(GetParam().config(), DType::kF32);
  const auto executor = make_ref_executor(m.config, m.plan, m.weights, {.context = kContext, .cache_memory = 64 << 20});
  Crowd crowd(*executor, 7);
  crowd.prepare([&](int count, uint64_t seed) { return m.tokens(count, seed); }, 10);
  crowd.run_all();
  EXPECT_GT(crowd.found, 0);
}

TEST_P(BatchTest, NorOnTheAdaptersOfOthers) {
  int found = 0;
  bool states = false;  // then a prefix is found at the ends of few blocks, and few have the same adapters
  for (const DType type : {DType::kBF16, DType::kQ4_K}) {
    const RandomModel m(GetParam().config(), type);
    for (const cpu::Kernels* kernels : cpu::available_kernels()) {
      SCOPED_TRACE(::testing::Message() << name_of(type) << " " << kernels->name);
      const auto executor = make_cpu_executor(m.config, m.plan, m.weights,
                                              {.context = kContext,
                                               .threads = 2,
                                               .block = 17,
                                               .cache_memory = 64 << 20,
                                               .adapters = testing::three_random_adapters(m.plan)},
                                              {.kernels = kernels});
      Crowd crowd(*executor, 3);
      crowd.prepare([&](int count, uint64_t seed) { return m.tokens(count, seed); }, 18, 90, 20,
                    testing::choices_of_three());
      crowd.run_all();
      if (HasFatalFailure()) return;
      found += crowd.found;
      states = !executor->cache().can_rewind();
    }
  }
  EXPECT_TRUE(states || found > 100) << "prefixes are found again";
}

INSTANTIATE_TEST_SUITE_P(Models, BatchTest, ::testing::ValuesIn(kModels),
                         [](const auto& model) { return std::string(model.param.name); });

}  // namespace
}  // namespace doppler
