// What is captured, kept in files, probed and summed up.
#include "debug/stages.h"

#include <gtest/gtest.h>

#include <cmath>

#include "debug/probe.h"
#include "debug/statistics.h"
#include "engine/backend.h"
#include "support/scratch.h"

namespace doppler {
namespace {

const std::vector<int32_t> kPrompt{2, 513, 665, 442, 365, 992, 418};

class Shipped : public ::testing::Test {
 protected:
  LoadedModel model_ = LoadedModel::load(DOPPLER_SOURCE_DIR "/models/tiny");
  std::unique_ptr<Executor> cpu(int block = 0) {
    return make_executor(model_, "cpu", {.context = 64, .threads = 2, .block = block});
  }
};

TEST(Statistics, AreOfTheWholeTensor) {
  const float inf = std::numeric_limits<float>::infinity();
  const TensorStatistics s = statistics(std::vector<float>{1, -3, inf, 2});
  EXPECT_EQ(s.min, -3);
  EXPECT_EQ(s.max, 2);
  EXPECT_EQ(s.max_abs, 3);
  EXPECT_NEAR(s.mean, 0, 1e-12);
  EXPECT_NEAR(s.rms, std::sqrt(14.0 / 3), 1e-12);
  EXPECT_EQ(s.not_finite, 1u);
  EXPECT_EQ(s.first_not_finite, 2u);
}

TEST_F(Shipped, TappedLayersHoldWhatTappingAllHolds) {
  const Stages all = capture_run(*cpu(), model_.plan, kPrompt, {});
  EXPECT_EQ(all.all.size(), model_.plan.steps.size());
  const std::vector<int> layers{0, 7};
  const Stages some = capture_run(*cpu(), model_.plan, kPrompt, steps_of_layers(model_.plan, layers));
  ASSERT_EQ(some.all.size(), 2u * 19 + 3);
  for (const Stage& stage : some.all) {
    ASSERT_NE(all.find(stage.name), nullptr);
    EXPECT_EQ(stage.data, all.find(stage.name)->data) << stage.name;
  }
  EXPECT_THROW(steps_of_layers(model_.plan, std::vector<int>{8}), Failure);
}

TEST_F(Shipped, BlocksAreJoined) {
  const Stages whole = capture_run(*cpu(), model_.plan, kPrompt, {});
  const Stages pieces = capture_run(*cpu(3), model_.plan, kPrompt, {});
  for (const Stage& stage : whole.all) EXPECT_EQ(pieces.find(stage.name)->rows(), stage.rows()) << stage.name;
}

TEST_F(Shipped, GeneratedTokensAreCapturedAsIfTheyHadBeenInThePrompt) {
  const Stages grown = capture_run(*cpu(), model_.plan, kPrompt, {}, {.generate = 3});
  ASSERT_EQ(grown.prompt_ids.size(), kPrompt.size() + 3);
  EXPECT_EQ(grown.prompt_ids[7], 1189);  // " blue"
  const Stages whole = capture_run(*cpu(), model_.plan, grown.prompt_ids, {});
  for (const Stage& stage : whole.all) {
    ASSERT_EQ(grown.find(stage.name)->rows(), stage.rows()) << stage.name;
  }
}

TEST_F(Shipped, TooMuchIsRefusedBeforeAnythingRuns) {
  EXPECT_NE(
      testing::sentence([&] { capture_run(*cpu(), model_.plan, kPrompt, {}, {.max_bytes = 1 << 10}); }).find("memory"),
      std::string::npos);
}

TEST_F(Shipped, AFileGivesBackWhatWasWritten) {
  const testing::Scratch scratch;
  const Stages run = capture_run(*cpu(), model_.plan, kPrompt, steps_of_layers(model_.plan, std::vector<int>{3}));
  write_stages(scratch / "stages.safetensors", run);
  const Stages back = read_stages(scratch / "stages.safetensors");
  EXPECT_EQ(back.prompt_ids, kPrompt);
  ASSERT_EQ(back.all.size(), run.all.size());
  for (const Stage& stage : run.all) {
    const Stage* other = back.find(stage.name);
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(other->data, stage.data);
    EXPECT_EQ(other->position, stage.position);
  }
  testing::spill(scratch / "broken.safetensors", "not a file");
  EXPECT_THROW(read_stages(scratch / "broken.safetensors"), Failure);
}

TEST_F(Shipped, ProbesGiveExactValuesAndRefuseWhatIsNotThere) {
  const Stages run = capture_run(*cpu(), model_.plan, kPrompt, {});
  const Stage& logits = *run.find("logits");
  const std::vector<ProbedValue> values =
      probe(parse_probe("stage=logits,tokens=-1,0,dims=476,3868", model_.plan)[0], run);
  ASSERT_EQ(values.size(), 4u);
  EXPECT_EQ(values[0].position, 6);
  EXPECT_EQ(values[1].value, logits.row(6)[3868]);
  EXPECT_EQ(values[2].value, logits.row(0)[476]);
  EXPECT_EQ(probe(parse_probe("stage=layer0.k_norm", model_.plan)[0], run).size(), 128u);
  for (const char* bad : {"", "logits", "stage=nothing", "stage=logits,dims=x", "stage=logits,rows=1", "dims=1"}) {
    EXPECT_THROW(parse_probe(bad, model_.plan), Failure) << bad;
  }
  EXPECT_THROW(probe(parse_probe("stage=logits,tokens=7", model_.plan)[0], run), Failure);
  EXPECT_THROW(probe(parse_probe("stage=logits,dims=8192", model_.plan)[0], run), Failure);
}

TEST_F(Shipped, TheSelfTestPassesAndRefusesABackendThatComputesWrongly) {
  const auto healthy = cpu();
  self_test(*healthy, model_);
  EXPECT_EQ(healthy->cache().held_pages(), 0u);
  LoadedModel wrong = LoadedModel::load(DOPPLER_SOURCE_DIR "/models/tiny");
  wrong.config.norm_offset = 0;
  wrong.plan = build_plan(wrong.config);
  const auto ill = make_executor(wrong, "cpu", {.context = 64});
  const std::string sentence = testing::sentence([&] { self_test(*ill, model_); });
  EXPECT_NE(sentence.find("layer0.attn_norm"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("--no-self-test"), std::string::npos) << sentence;
}

}  // namespace
}  // namespace doppler
