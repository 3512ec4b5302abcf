#include "gpu/run/fusions.h"

#include <gtest/gtest.h>

#include "support/model_configs.h"

namespace doppler::gpu {
namespace {

std::vector<std::string> names(const Plan& plan, const FusedGroup& group) {
  std::vector<std::string> out;
  for (const int s : group.steps) out.push_back(plan.steps[static_cast<size_t>(s)].name);
  return out;
}

TEST(Fusions, CoverEveryStepOnceInOrder) {
  for (const ModelConfig& config :
       {doppler::testing::plain_config(), doppler::testing::quirky_config(), doppler::testing::expert_config(),
        doppler::testing::multiplied_config(), doppler::testing::sparse_config(), doppler::testing::conv_config(),
        doppler::testing::delta_config(), doppler::testing::delta_expert_config(),
        doppler::testing::layer_input_config(), doppler::testing::beside_config()}) {
    const Plan plan = build_plan(config);
    int next = 0;
    for (const FusedGroup& group : fuse_for_decode(plan)) {
      for (const int s : group.steps) EXPECT_EQ(s, next++) << config.id;
    }
    EXPECT_EQ(next, static_cast<int>(plan.steps.size()));
  }
}

TEST(Fusions, ALayerWithSandwichNormsIsFiveGroups) {
  const Plan plan = build_plan(doppler::testing::quirky_config());
  const std::vector<FusedGroup> groups = fuse_for_decode(plan);
  // embed, then five a layer, then the logits
  ASSERT_EQ(groups.size(), 1u + 5 * 4 + 1);
  EXPECT_EQ(names(plan, groups[1]),
            (std::vector<std::string>{"layer0.attn_norm", "layer0.q_proj", "layer0.k_proj", "layer0.v_proj"}));
  EXPECT_EQ(groups[2].fusion, Fusion::kAttention);
  EXPECT_EQ(names(plan, groups[2]), (std::vector<std::string>{"layer0.q_norm", "layer0.k_norm", "layer0.q_rope",
                                                              "layer0.k_rope", "layer0.attention"}));
  EXPECT_EQ(groups[3].fusion, Fusion::kMerge);
  EXPECT_EQ(names(plan, groups[4]),
            (std::vector<std::string>{"layer0.post_attn_norm", "layer0.attn_residual", "layer0.pre_ffn_norm",
                                      "layer0.gate_proj", "layer0.up_proj", "layer0.glu"}));
  EXPECT_GE(groups[4].glu, 0);
  EXPECT_EQ(names(plan, groups[5]), (std::vector<std::string>{"layer0.ffn_out"}));
  EXPECT_EQ(names(plan, groups[6])[0], "layer0.post_ffn_norm")
      << "the end of a layer goes with the beginning of the next";
  EXPECT_EQ(names(plan, groups.back()),
            (std::vector<std::string>{"layer3.post_ffn_norm", "layer3.out", "final_norm", "raw_logits", "logits"}));
}

TEST(Fusions, APlainLayerIsFiveGroupsToo) {
  const Plan plan = build_plan(doppler::testing::plain_config());
  const std::vector<FusedGroup> groups = fuse_for_decode(plan);
  ASSERT_EQ(groups.size(), 1u + 5 * 2 + 1);
  EXPECT_EQ(groups[4].branch_norm, -1);
  EXPECT_GE(groups[4].add, 0);
}

TEST(Fusions, ALayerOfExpertsIsSixGroups) {
  const Plan plan = build_plan(doppler::testing::expert_config());
  const std::vector<FusedGroup> groups = fuse_for_decode(plan);
  const size_t layers = static_cast<size_t>(doppler::testing::expert_config().layer_count());
  ASSERT_EQ(groups.size(), 1u + 6 * layers + 1);
  EXPECT_EQ(names(plan, groups[4]),
            (std::vector<std::string>{"layer0.attn_residual", "layer0.pre_ffn_norm", "layer0.router"}));
  EXPECT_EQ(groups[5].fusion, Fusion::kExpertsUp);
  EXPECT_EQ(names(plan, groups[5]), (std::vector<std::string>{"layer0.route", "layer0.experts_gate_up", "layer0.glu"}));
  EXPECT_EQ(groups[5].norm, groups[4].norm) << "experts make the router's norm anew";
  EXPECT_EQ(groups[6].fusion, Fusion::kExpertsDown);
  EXPECT_EQ(names(plan, groups[6]), (std::vector<std::string>{"layer0.experts_down", "layer0.ffn_out"}));
}

TEST(Fusions, StepsInsideOneAreSeenThroughWhatItReadsOrStores) {
  const Plan plan = build_plan(doppler::testing::quirky_config());
  const std::vector<FusedGroup> groups = fuse_for_decode(plan);
  using Kind = TapSource::Kind;
  const auto number = [&](const std::string& name) { return static_cast<int>(plan.find(name) - plan.steps.data()); };
  const auto width = [&](const std::string& name) {
    return plan.values[static_cast<size_t>(plan.find(name)->output)].width;
  };
  const auto source_of = [&](const std::string& name) {
    const auto sources = plan_taps(plan, groups, [&](const Step& step) { return step.name == name; }).sources;
    EXPECT_EQ(sources.size(), 1u);
    EXPECT_EQ(sources.at(0).step, number(name));
    return sources.at(0);
  };
  EXPECT_TRUE(plan_taps(plan, groups, [](const Step&) { return false; }).sources.empty());
  for (const char* stored : {"embed", "layer1.attn_out", "layer1.attn_residual", "layer1.glu", "layer1.ffn_out",
                             "layer1.out", "layer3.out", "logits"}) {
    const TapSource source = source_of(stored);
    EXPECT_EQ(source.kind, Kind::kValue) << stored;
    EXPECT_EQ(source.of, plan.find(stored)->output) << stored;
    EXPECT_EQ(source.norm, -1) << stored;
  }
  const TapSource norm = source_of("layer1.pre_ffn_norm");
  EXPECT_EQ(norm.of, plan.find("layer1.attn_residual")->output);
  EXPECT_EQ(norm.norm, number("layer1.pre_ffn_norm"));
  EXPECT_EQ(source_of("layer1.post_ffn_norm").of, plan.find("layer1.ffn_out")->output);

  const TapSource v = source_of("layer1.v_proj"), k = source_of("layer1.k_rope");
  EXPECT_EQ(v.kind, Kind::kQkv);
  EXPECT_EQ(v.of, 1);
  EXPECT_EQ(v.from, width("layer1.q_proj") + width("layer1.k_proj"));
  EXPECT_EQ(k.kind, Kind::kQkv);
  EXPECT_EQ(k.from, width("layer1.q_proj"));
  EXPECT_EQ(k.norm, number("layer1.k_norm"));
  EXPECT_EQ(k.rope, number("layer1.k_rope"));
  EXPECT_EQ(source_of("layer1.attention").kind, Kind::kSplits);

  const TapSource up = source_of("layer1.up_proj");
  EXPECT_EQ(up.kind, Kind::kRecomputed);
  EXPECT_EQ(groups[static_cast<size_t>(up.of)].norm, number("layer1.pre_ffn_norm"));
  EXPECT_EQ(up.from, width("layer1.gate_proj"));
  EXPECT_EQ(source_of("raw_logits").kind, Kind::kRecomputed);
}

TEST(Fusions, WhatExpertsMakeOnTheWayIsRecomputed) {
  const Plan plan = build_plan(doppler::testing::expert_config());
  const std::vector<FusedGroup> groups = fuse_for_decode(plan);
  const auto recomputed = [&](const std::string& name) {
    std::vector<std::string> list;
    for (const int s : plan_taps(plan, groups, [&](const Step& step) { return step.name == name; }).recomputed) {
      list.push_back(plan.steps[static_cast<size_t>(s)].name);
    }
    return list;
  };
  for (const char* stored : {"layer0.router", "layer0.route", "layer0.ffn_out", "layer0.pre_ffn_norm"}) {
    EXPECT_TRUE(recomputed(stored).empty()) << stored;
  }
  EXPECT_EQ(
      recomputed("layer0.experts_down"),
      (std::vector<std::string>{"layer0.pre_ffn_norm", "layer0.experts_gate_up", "layer0.glu", "layer0.experts_down"}));
}

}  // namespace
}  // namespace doppler::gpu
