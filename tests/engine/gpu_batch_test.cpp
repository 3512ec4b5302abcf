// The same answer on a GPU whoever is beside you (support/crowd.h): pages, forks, prefixes and windows, and prompts cut
// anywhere.
#include <gtest/gtest.h>

#include "cpu/random_model.h"
#include "gpu/run/gpu_executor.h"
#include "gpu/webgpu/device.h"
#include "support/crowd.h"
#include "support/random_adapters.h"
#include "support/software_gpu.h"

namespace doppler {
namespace {

constexpr int kContext = 200;

ModelConfig windows_config() {
  ModelConfig c = testing::quirky_config();
  c.layers = {{7, 1}, {70, 0}, {0, 1}};
  return c;
}

struct Model {
  const char* name;
  ModelConfig (*config)();
  DType type;
};
const Model kModels[] = {{"windows_q4_k", windows_config, DType::kQ4_K},
                         {"experts_bf16", testing::expert_config, DType::kBF16},
                         {"conv_bf16", testing::conv_config, DType::kBF16},
                         {"delta_bf16", testing::delta_config, DType::kBF16},
                         {"layer_input_bf16", testing::layer_input_config, DType::kBF16}};

class GpuBatch : public ::testing::TestWithParam<Model> {};

TEST_P(GpuBatch, AnAnswerDoesNotDependOnWhatRunsBesideIt) {
  if (const std::string why = testing::missing_gpu(); !why.empty()) GTEST_SKIP() << why;
  const RandomModel m(GetParam().config(), GetParam().type);
  const auto executor = make_gpu_executor(m.config, m.plan, m.weights,
                                          {.context = kContext, .block = 96, .checked = true, .sequences = 10});
  Crowd crowd(*executor, 5);
  crowd.prepare([&](int count, uint64_t seed) { return m.tokens(count, seed); }, executor->cache().can_rewind() ? 5 : 3,
                100, 6);
  crowd.run_all();
  // Few of these short texts are run to the end of a page, which a state is found at.
  EXPECT_TRUE(crowd.found > 0 || !executor->cache().can_rewind()) << "prefixes are found again";
}

TEST(GpuAdapters, AnAnswerDoesNotDependOnTheAdaptersOfOthers) {
  if (const std::string why = testing::missing_gpu(); !why.empty()) GTEST_SKIP() << why;
  const RandomModel m(windows_config(), DType::kQ4_K);
  const auto executor = make_gpu_executor(m.config, m.plan, m.weights,
                                          {.context = kContext,
                                           .block = 96,
                                           .checked = true,
                                           .sequences = 10,
                                           .adapters = testing::three_random_adapters(m.plan)});
  Crowd crowd(*executor, 5);
  crowd.prepare([&](int count, uint64_t seed) { return m.tokens(count, seed); }, 6, 100, 6,
                testing::choices_of_three());
  crowd.run_all();
}

// A text is gone on from the state at the end of its last page, and comes to the same bits.
TEST(GpuStates, APrefixIsFoundAtTheEndOfAPage) {
  if (const std::string why = testing::missing_gpu(); !why.empty()) GTEST_SKIP() << why;
  const RandomModel m(testing::delta_config(), DType::kBF16);
  const auto executor = make_gpu_executor(m.config, m.plan, m.weights, {.context = kContext, .checked = true});
  const std::vector<int32_t> text = m.tokens(75);
  std::vector<float> first;
  for (const int found : {0, 64}) {
    Sequence sequence = executor->cache().start();
    EXPECT_EQ(executor->cache().take_prefix(sequence, text, Phase::kPrefill), found);
    const BatchItem item{&sequence, std::span(text).subspan(static_cast<size_t>(found)), Phase::kPrefill,
                         Logits::kLast};
    const std::span<const float> logits = executor->run(std::span(&item, 1));
    if (first.empty()) first.assign(logits.begin(), logits.end());
    EXPECT_TRUE(std::equal(first.begin(), first.end(), logits.begin(), logits.end()));
  }
}

// The rows of a token come from where the table lies: the GPU never holds it.
TEST(GpuTables, WhatIsReadRowByRowIsNotUploaded) {
  testing::choose_gpu_driver();
  std::string why;
  if (!gpu::webgpu_available(&why)) GTEST_SKIP() << "no GPU: " << why;
  ModelConfig config = testing::layer_input_config();
  config.vocab = 6000;
  config.layer_input = 256;
  const RandomModel m(config, DType::kBF16);
  const uint64_t table = m.weights.at("per_layer_embed").byte_size();
  ASSERT_EQ(table, 6000u * 5 * 256 * 2);
  const auto executor =
      make_gpu_executor(m.config, m.plan, m.weights, {.context = 64, .block = 8, .checked = true, .sequences = 1});
  Sequence sequence = executor->cache().start();
  const std::vector<int32_t> text = m.tokens(11);
  const BatchItem item{&sequence, text, Phase::kPrefill, Logits::kLast};
  executor->run(std::span(&item, 1));
  EXPECT_LT(executor->counters().bytes, table / 2);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuBatch, ::testing::ValuesIn(kModels),
                         [](const auto& model) { return std::string(model.param.name); });

}  // namespace
}  // namespace doppler
