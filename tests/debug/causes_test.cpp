// Signatures that need no engine: stages made by hand, one thing wrong in each.
#include "debug/causes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "debug/report.h"
#include "support/model_configs.h"

namespace doppler {
namespace {

constexpr int kRows = 9;

// A plan's stages filled with numbers that look like nothing in particular.
Stages filled(const Plan& plan) {
  Stages stages;
  uint32_t state = 7;
  for (const Step& step : plan.steps) {
    Stage stage{step.name, plan.values[static_cast<size_t>(step.output)].width, 0, {}};
    for (int i = 0; i < kRows * stage.width; ++i) {
      state = state * 1664525u + 1013904223u;
      stage.data.push_back(static_cast<float>(state >> 8) / 8388608.f - 1.f);
    }
    stages.all.push_back(std::move(stage));
  }
  return stages;
}

class Signature : public ::testing::Test {
 protected:
  ModelConfig config_ = testing::quirky_config();
  Plan plan_ = build_plan(config_);
  Weights weights_;
  Stages reference_ = filled(plan_), run_ = reference_;

  Stage& stage(Stages& stages, const char* name) { return const_cast<Stage&>(*stages.find(name)); }
  Comparison compare() { return compare_stages(run_, reference_, {config_, plan_, weights_}, {2e-2, 8e-4, 2e-2}); }
  void expect(const char* step, const char* cause) {
    const Comparison c = compare();
    EXPECT_EQ(c.first_bad, step);
    EXPECT_NE(c.cause.find(cause), std::string::npos) << c.cause;
    EXPECT_FALSE(c.stages.back().ok);
  }
};

TEST_F(Signature, NothingWrongIsNothingFound) {
  const Comparison c = compare();
  EXPECT_EQ(c.first_bad, "");
  EXPECT_EQ(c.stages.size(), plan_.steps.size());
}

TEST_F(Signature, SkippedStepGivesBackItsInput) {
  stage(run_, "layer1.post_attn_norm").data = stage(reference_, "layer1.attn_out").data;
  expect("layer1.post_attn_norm", "layer1.attn_out");
}

TEST_F(Signature, TailColumnsMeanPadding) {
  Stage& s = stage(run_, "layer2.up_proj");
  for (int r = 0; r < kRows; ++r) {
    for (int c = s.width - 5; c < s.width; ++c) s.data[static_cast<size_t>(r * s.width + c)] *= -2;
  }
  expect("layer2.up_proj", "last 5 of 40 columns");
}

TEST_F(Signature, OneColumnIsARowOfTheWeight) {
  Stage& s = stage(run_, "layer0.k_proj");
  for (int r = 0; r < kRows; ++r) s.data[static_cast<size_t>(r * s.width + 3)] *= -2;
  expect("layer0.k_proj", "row of the weight layer0.k_proj");
}

TEST_F(Signature, ZerosMeanThatAKernelDidNothing) {
  for (float& v : stage(run_, "layer0.glu").data) v = 0;
  expect("layer0.glu", "did nothing");
}

TEST_F(Signature, AFactorIsNamed) {
  for (float& v : stage(run_, "layer3.attn_out").data) v *= 1.25f;
  expect("layer3.attn_out", "factor 1.25");
}

TEST_F(Signature, AConstantDifferenceIsABias) {
  Stage& s = stage(run_, "layer0.q_proj");
  for (int i = 0; i < kRows * s.width; ++i)
    s.data[static_cast<size_t>(i)] += 0.3f * static_cast<float>(i % s.width % 3);
  expect("layer0.q_proj", "bias");
}

TEST_F(Signature, RowsOfTheirNeighboursArePositionsOffByOne) {
  Stage& s = stage(run_, "layer0.attn_norm");
  s.data.insert(s.data.begin(), s.data.begin(), s.data.begin() + s.width);
  s.data.resize(s.data.size() - static_cast<size_t>(s.width));
  expect("layer0.attn_norm", "off by one");
}

TEST_F(Signature, NotFiniteIsNamedWithItsPlace) {
  Stage& s = stage(run_, "layer1.ffn_out");
  s.data[static_cast<size_t>(4 * s.width + 7)] = std::numeric_limits<float>::quiet_NaN();
  expect("layer1.ffn_out", "position 4, column 7");
  const auto found = first_not_finite(*plan_.find(s.name), s.data, s.rows(), s.position);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->stage, "layer1.ffn_out");
  EXPECT_EQ(found->position, 4);
  EXPECT_EQ(found->column, 7);
  EXPECT_EQ(found->count, 1u);
}

TEST_F(Signature, ASparseReferenceNamesTheStepsItSaysNothingOf) {
  std::erase_if(reference_.all, [](const Stage& s) {
    return s.name.find("norm") == std::string::npos && s.name.find("attn_out") == std::string::npos;
  });
  for (float& v : stage(run_, "layer0.attn_out").data) v = -v * 0.3f + 1;
  const Comparison c = compare();
  EXPECT_EQ(c.first_bad, "layer0.attn_out");
  const std::vector<std::string> expected{"layer0.q_rope", "layer0.k_rope", "layer0.attention"};
  EXPECT_EQ(c.suspects, expected);
}

TEST_F(Signature, AnErrorOfAnInputIsInheritedNotFlagged) {
  uint32_t state = 3;
  double size = 2e-3;  // grows along the plan, as rounding does, but never jumps
  for (Stage& s : run_.all) {
    for (float& v : s.data) {
      state = state * 1664525u + 1013904223u;
      v *= 1 + static_cast<float>(size * (static_cast<double>(state >> 8) / 8388608.0 - 1.0));
    }
    size = std::min(size * 1.05, 1.5e-2);
  }
  EXPECT_EQ(compare().first_bad, "embed");  // from nothing to 1e-3 is a jump …
  const Comparison c = compare_stages(run_, reference_, {config_, plan_, weights_}, {2e-2, 2e-3, 4e-2});
  EXPECT_EQ(c.first_bad, "");  // … but not where a step may add as much; the last errors are four times that
  EXPECT_GT(c.stages.back().rel_error, 6e-3);
}

TEST_F(Signature, JsonHasTheKeysThatMachinesRead) {
  for (float& v : stage(run_, "layer0.glu").data) v = 0;
  const Comparison c = compare();
  const Json json = comparison_json(c, plan_, [](const Step&) { return "kernel x"; });
  EXPECT_EQ(json["first_bad"], "layer0.glu");
  EXPECT_EQ(json["kernel"], "kernel x");
  EXPECT_TRUE(json["cause"].is_string());
  for (const Json& s : json["stages"]) {
    for (const char* key : {"name", "rel_error", "cosine", "worst", "ok"}) EXPECT_TRUE(s.contains(key)) << key;
  }
  const std::string text = comparison_table(c, run_, plan_, [](const Step&) { return "kernel x"; });
  EXPECT_NE(text.find("First out of bounds: layer0.glu"), std::string::npos);
  EXPECT_NE(text.find("layer0.gate_proj"), std::string::npos);
  EXPECT_NE(text.find("kernel x"), std::string::npos);
}

}  // namespace
}  // namespace doppler
