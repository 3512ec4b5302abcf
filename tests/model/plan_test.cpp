#include "model/plan.h"

#include <gtest/gtest.h>

#include <set>

#include "model/cost.h"
#include "model/kv_cache.h"
#include "model/state_layout.h"
#include "support/model_configs.h"

namespace doppler {
namespace {

TEST(Plan, EveryInputIsMadeByAnEarlierStepAndNamesAreUnique) {
  for (const ModelConfig& config :
       {plain_config(), quirky_config(), expert_config(), testing::multiplied_config(), testing::sparse_config(),
        testing::conv_config(), testing::delta_config(), testing::delta_expert_config(), testing::layer_input_config(),
        testing::beside_config()}) {
    const Plan plan = build_plan(config);
    std::set<int> made;
    std::set<std::string> names;
    for (const Step& step : plan.steps) {
      for (const int input : step.inputs) EXPECT_TRUE(made.count(input)) << config.id << " " << step.name;
      EXPECT_TRUE(made.insert(step.output).second) << step.name << " overwrites a value";
      EXPECT_TRUE(names.insert(step.name).second) << step.name << " appears twice";
      EXPECT_EQ(plan.values[static_cast<size_t>(step.output)].name, step.name);
    }
    EXPECT_EQ(plan.steps.back().name, "logits");
    EXPECT_EQ(plan.values[static_cast<size_t>(plan.steps.back().output)].width, config.vocab);
  }
}

TEST(Plan, ResidualsAddTheBranchToWhatCameIn) {
  const Plan plan = build_plan(quirky_config());
  const Step* add = plan.find("layer1.out");
  ASSERT_TRUE(add);
  EXPECT_EQ(plan.values[static_cast<size_t>(add->inputs[0])].name, "layer1.attn_residual");
  EXPECT_EQ(plan.values[static_cast<size_t>(add->inputs[1])].name, "layer1.post_ffn_norm");
  const Step* norm = plan.find("layer1.post_attn_norm");
  ASSERT_TRUE(norm);
  EXPECT_EQ(plan.values[static_cast<size_t>(norm->inputs[0])].name, "layer1.attn_out");
}

TEST(Plan, QuirksAppearOnlyWhereTheConfigAsks) {
  const Plan plain = build_plan(plain_config()), quirky = build_plan(quirky_config());
  for (const char* name :
       {"layer0.q_norm", "layer0.k_norm", "layer0.post_attn_norm", "layer0.post_ffn_norm", "raw_logits"}) {
    EXPECT_FALSE(plain.find(name)) << name;
    EXPECT_TRUE(quirky.find(name)) << name;
  }
  EXPECT_EQ(std::get<Attention>(quirky.find("layer0.attention")->op).window, 5);
  EXPECT_EQ(std::get<Attention>(quirky.find("layer2.attention")->op).window, 0);
  EXPECT_EQ(std::get<Rope>(quirky.find("layer0.q_rope")->op).rope, 1);
  EXPECT_EQ(std::get<Rope>(quirky.find("layer2.k_rope")->op).rope, 0);
  EXPECT_EQ(quirky.find("raw_logits")->weights[0].slot, "embed");
  EXPECT_EQ(plain.find("logits")->weights[0].slot, "lm_head");
}

TEST(Plan, OfVectorsEndsWithTheNormAndSeesHalfAWindowToEitherSide) {
  const Plan plan = build_plan(testing::embedding_config());
  EXPECT_EQ(plan.steps.back().name, "final_norm");
  ASSERT_EQ(plan.dense.size(), 2u);
  EXPECT_EQ(plan.dense[0].shape, (std::vector<int64_t>{40, 24}));
  EXPECT_EQ(plan.dense[1].shape, (std::vector<int64_t>{12, 40}));
  const auto& local = std::get<Attention>(plan.find("layer0.attention")->op);  // a window of 5: two to either side
  EXPECT_EQ(local.window, 3);
  EXPECT_EQ(local.ahead, 2);
  EXPECT_EQ(std::get<Attention>(plan.find("layer2.attention")->op).ahead, kAllAhead);
  EXPECT_FALSE(make_kv_layout(plan, 4, 64).prefixes) << "keys say what stands behind them";
  EXPECT_TRUE(make_kv_layout(build_plan(quirky_config()), 4, 64).prefixes);
}

TEST(Plan, ExpertsReplaceTheDenseFeedForward) {
  const Plan plan = build_plan(expert_config());
  EXPECT_FALSE(plan.find("layer0.gate_proj"));
  const Step* down = plan.find("layer0.experts_down");
  ASSERT_TRUE(down);
  EXPECT_EQ(down->weights[0].shape, (std::vector<int64_t>{4, 24, 40}));
  EXPECT_TRUE(std::get<Attention>(plan.find("layer1.attention")->op).sinks);
}

TEST(Plan, LayersShareKeysAndHaveHeadsAndInputsOfTheirOwn) {
  const Plan plan = build_plan(testing::layer_input_config());
  EXPECT_FALSE(plan.find("layer3.k_proj"));
  const Step* shared = plan.find("layer3.attention");
  ASSERT_TRUE(shared);
  EXPECT_TRUE(std::get<Attention>(shared->op).shared);
  EXPECT_EQ(std::get<Attention>(shared->op).layer, 1);
  EXPECT_EQ(shared->inputs[1], plan.find("layer1.k_rope")->output);
  EXPECT_EQ(plan.find("layer1.q_proj")->weights[0].shape, (std::vector<int64_t>{64, 24}));
  EXPECT_EQ(plan.find("layer4.up_proj")->weights[0].shape, (std::vector<int64_t>{80, 24}));
  EXPECT_TRUE(plan.find("layer0.v_norm")->weights.empty());
  const Step* table = plan.find("per_layer_embed");
  ASSERT_TRUE(table);
  EXPECT_TRUE(std::get<Embed>(table->op).mapped);
  EXPECT_EQ(table->weights[0].shape, (std::vector<int64_t>{50, 5 * 12}));
  EXPECT_EQ(std::get<Part>(plan.find("layer2.per_layer_input")->op).index, 2);
  EXPECT_EQ(make_kv_layout(plan, 4, 64).places.size(), 3u) << "those that share keys have no cache";
}

TEST(Plan, AFeedForwardStandsBesideExperts) {
  const Plan plan = build_plan(testing::beside_config());
  const Step* keys = plan.find("layer1.attention");
  ASSERT_TRUE(keys);
  EXPECT_EQ(plan.find("layer1.v_norm")->inputs[0], plan.find("layer1.k_proj")->output);
  EXPECT_FALSE(plan.find("layer1.v_proj"));
  EXPECT_EQ(plan.find("layer1.k_proj")->weights[0].shape, (std::vector<int64_t>{16, 24}));
  EXPECT_EQ(plan.find("layer0.route")->weights[0].slot, "layer0.route_scale");
  EXPECT_EQ(plan.find("layer0.router_norm")->inputs, plan.find("layer0.pre_ffn_norm_2")->inputs);
  EXPECT_TRUE(plan.find("layer0.ffn_out"));
}

TEST(Plan, DescribesAStepInOneLine) {
  const Plan plan = build_plan(quirky_config());
  const std::string line = describe(*plan.find("layer0.attention"), plan);
  EXPECT_NE(line.find("layer0.q_rope, layer0.k_rope, layer0.v_proj"), std::string::npos) << line;
  EXPECT_NE(line.find("window 5"), std::string::npos) << line;
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(Cost, CountsWhatOneTokenMustRead) {
  const ModelConfig config = plain_config();
  const Plan plan = build_plan(config);
  Weights weights;
  std::vector<std::vector<float>> storage;
  size_t matrices = 0;
  for (const Step& step : plan.steps) {
    for (const WeightUse& use : step.weights) {
      Tensor tensor{use.slot, DType::kF32, use.shape, {}};
      storage.emplace_back(static_cast<size_t>(tensor.rows() * tensor.cols()));
      tensor.bytes = std::as_bytes(std::span(storage.back()));
      if (use.slot != "embed") matrices += tensor.bytes.size();
      weights.add(use.slot, tensor);
    }
  }
  EXPECT_TRUE(weight_faults(plan, weights).empty());
  const Cost cost = decode_cost(plan, weights, 9);
  EXPECT_DOUBLE_EQ(cost.weight_bytes, static_cast<double>(matrices) + 24 * 4);  // all of it, and one embedding row
  EXPECT_DOUBLE_EQ(cost.kv_bytes, 2 /*layers*/ * 10 * 2 * 16 * 2);
  EXPECT_EQ(kv_cache_bytes(config, 100), 2u * 100 * 2 * 16 * 2);
  EXPECT_EQ(kv_cache_bytes(quirky_config(), 100), (5u + 5 + 100 + 5) * 2 * 16 * 2);
  EXPECT_EQ(kv_cache_bytes(testing::conv_config(), 100), 100u * 2 * 16 * 2);  // one layer of attention
}

TEST(StateLayout, StatesLieBehindEachOther) {
  const ModelConfig config = testing::delta_config();
  const StateLayout layout = make_state_layout(build_plan(config));
  const size_t conv = 3 * (2 * 2 * 12 + 4 * 20), delta = 4 * 12 * 20;  // of a layer; there are two
  EXPECT_EQ(layout.floats, (std::vector<size_t>{conv, delta, conv, delta}));
  EXPECT_EQ(layout.offsets, (std::vector<size_t>{0, conv, conv + delta, 2 * conv + delta}));
  EXPECT_EQ(layout.total, 2 * (conv + delta));
  EXPECT_EQ(state_copies(layout, 4), 3u * 4 + 64);
  EXPECT_EQ(state_copies(make_state_layout(build_plan(plain_config())), 4), 0u);
}

TEST(Weights, SaysWhatIsMissingMisshapenOrUnused) {
  const Plan plan = build_plan(plain_config());
  Weights weights;
  weights.add("final_norm", Tensor{"model.norm.weight", DType::kF32, {23}, {}});
  weights.add("layer0.q_norm", Tensor{"model.layers.0.q", DType::kF32, {8}, {}});
  const std::vector<std::string> faults = weight_faults(plan, weights);
  const auto mentions = [&](const std::string& text) {
    for (const std::string& fault : faults) {
      if (fault.find(text) != std::string::npos) return true;
    }
    return false;
  };
  EXPECT_TRUE(mentions("embed is missing"));
  EXPECT_TRUE(mentions("final_norm (model.norm.weight) has shape [23], but step final_norm needs [24]"));
  EXPECT_TRUE(mentions("layer0.q_norm (model.layers.0.q) is there, but no step uses it"));
}

}  // namespace
}  // namespace doppler
