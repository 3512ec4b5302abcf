#include "gpu/fusions.h"

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
       {doppler::testing::plain_config(), doppler::testing::quirky_config(), doppler::testing::expert_config()}) {
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

TEST(Fusions, ExpertsStandAloneWhereOneOfThemIsLookedAt) {
  const Plan plan = build_plan(doppler::testing::expert_config());
  for (const FusedGroup& group : fuse_for_decode(plan, {"layer0.experts_down"})) {
    if (names(plan, group)[0].rfind("layer0.", 0) != 0) continue;
    EXPECT_NE(group.fusion, Fusion::kExpertsUp);
    EXPECT_NE(group.fusion, Fusion::kExpertsDown);
    if (group.fusion == Fusion::kProjectNorm) {
      EXPECT_NE(names(plan, group).back(), "layer0.router") << "others want this norm";
    }
  }
}

}  // namespace
}  // namespace doppler::gpu
