// Looking into a batched decode on a GPU: the same tokens come out, and what is seen is what the CPU computes.
#include <gtest/gtest.h>

#include <algorithm>

#include "convert/convert.h"
#include "debug/compare.h"
#include "engine/backend.h"
#include "gpu/webgpu/device.h"
#include "support/reference.h"
#include "support/runner.h"
#include "support/scratch.h"
#include "support/software_gpu.h"

namespace doppler {
namespace {

class DecodeTaps : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string why = testing::missing_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_P(DecodeTaps, KeepEveryTokenOfASubmitAndChangeNoChoice) {
  const std::filesystem::path source = DOPPLER_TEST_DATA "/models/" + std::string(GetParam());
  testing::Scratch scratch;
  ConvertOptions options;
  options.recipe = recipe_named("f32");
  options.no_tokenizer = true;
  convert(source, scratch / "model", options);
  const LoadedModel model = LoadedModel::load(scratch / "model");
  const std::vector<int32_t> prompt = testing::Reference(source).ids("prompt_ids");
  const ExecutorOptions room{.context = 128, .threads = 2, .checked = true};
  const auto plain = testing::one_sequence(make_executor(model, "webgpu", room));
  const auto tapped = testing::one_sequence(make_executor(model, "webgpu", room));
  const int32_t first = argmax(plain->forward(prompt, Logits::kLast));
  const uint64_t start = plain->counters().submits;
  const std::vector<int32_t> expected = plain->decode(first, 6, {}, 0);
  const uint64_t submits = plain->counters().submits - start;
  if (expected.empty()) GTEST_SKIP() << "this device chooses no tokens itself";
  tapped->forward(prompt, Logits::kLast);
  {
    // Some layers of one model, all of the other (an empty list).
    const std::vector<int> layers = GetParam() == std::string("gemma3-a") ? std::vector<int>{0, 3} : std::vector<int>{};
    tapped->rewind(static_cast<int>(prompt.size()));
    const TapSteps steps = steps_of_layers(model.plan, layers);
    Capture capture("webgpu");
    tapped->set_tap_at(capture.tap(), steps);
    const uint64_t before = tapped->counters().submits;
    const std::vector<int32_t> chosen = tapped->decode(first, 6, {}, 0);
    EXPECT_EQ(tapped->counters().submits, before + submits) << "the last copies all that was tapped";
    tapped->set_tap(nullptr);
    EXPECT_EQ(chosen, expected);
    const Stages seen = capture.take();

    std::vector<int32_t> text = prompt;
    text.push_back(first);
    text.insert(text.end(), expected.begin(), expected.end() - 1);
    const auto cpu = make_executor(model, "cpu", room);
    const Stages all = capture_run(*cpu, model.plan, text, steps);
    const Comparison c =
        compare_stages(seen, all, {model.config, model.plan, model.weights, 128}, bounds_for(model.weights, true));
    EXPECT_EQ(c.first_bad, "") << c.cause;
    EXPECT_EQ(c.stages.size(), all.all.size());
    ASSERT_FALSE(seen.all.empty());
    EXPECT_EQ(seen.all[0].rows(), 6);
    EXPECT_EQ(seen.all[0].position, static_cast<int>(prompt.size()));

    // Who looks may end the run, and go on later.
    std::string last;
    const Tap enough = [&](const Step& step, std::span<const float>, int, int) {
      last = step.name;
      if (step.name == "layer0.attn_norm") fail({.code = ErrorCode::kUsage, .what = "seen enough"});
    };
    tapped->rewind(static_cast<int>(prompt.size()));
    tapped->set_tap_at(enough, steps);
    EXPECT_THROW(tapped->decode(first, 1, {}, 0), Failure);
    EXPECT_EQ(last, "layer0.attn_norm");
    tapped->set_tap(nullptr);
    tapped->rewind(static_cast<int>(prompt.size()));
    EXPECT_EQ(tapped->decode(first, 1, {}, 0).at(0), expected[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, DecodeTaps, ::testing::Values("gemma3-a", "gemma2-a"), [](const auto& each) {
  std::string name = each.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace doppler
