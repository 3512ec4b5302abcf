#include "model/lifetimes.h"

#include <gtest/gtest.h>

#include "support/model_configs.h"

namespace doppler {
namespace {

// Plays the plan group by group: whatever a group reads must still be what its maker put there.
void expect_nothing_is_overwritten(const Plan& plan, const StepGroups& groups, const BufferPlan& buffers) {
  std::vector<int> holds(buffers.widths.size(), -1);
  for (const std::vector<int>& group : groups) {
    std::vector<int> inside;
    std::vector<int> reads;
    for (const int s : group) {
      const Step& step = plan.steps[static_cast<size_t>(s)];
      for (const int input : step.inputs) {
        if (std::find(inside.begin(), inside.end(), input) != inside.end()) continue;
        const int buffer = buffers.buffer_of[static_cast<size_t>(input)];
        ASSERT_GE(buffer, 0) << step.name << " reads a value without memory";
        EXPECT_EQ(holds[static_cast<size_t>(buffer)], input) << step.name;
        reads.push_back(buffer);
      }
      inside.push_back(step.output);
    }
    for (const int s : group) {
      const int value = plan.steps[static_cast<size_t>(s)].output;
      const int buffer = buffers.buffer_of[static_cast<size_t>(value)];
      if (buffer < 0) continue;
      EXPECT_EQ(std::count(reads.begin(), reads.end(), buffer), 0) << "a group writes what it reads";
      EXPECT_GE(buffers.widths[static_cast<size_t>(buffer)], plan.values[static_cast<size_t>(value)].width);
      holds[static_cast<size_t>(buffer)] = value;
    }
  }
  const int logits = plan.steps.back().output;
  EXPECT_EQ(holds[static_cast<size_t>(buffers.buffer_of[static_cast<size_t>(logits)])], logits);
}

TEST(Lifetimes, NoLiveValueIsEverOverwritten) {
  for (const ModelConfig& config :
       {testing::plain_config(), testing::quirky_config(), testing::expert_config(), testing::multiplied_config(),
        testing::sparse_config(), testing::conv_config(), testing::delta_config(), testing::delta_expert_config(),
        testing::layer_input_config(), testing::beside_config()}) {
    const Plan plan = build_plan(config);
    const BufferPlan shared = share_buffers(plan, single_steps(plan));
    expect_nothing_is_overwritten(plan, single_steps(plan), shared);
    size_t kept = 0;  // by layers for later ones than the next
    for (size_t v = 0; v < plan.values.size(); ++v) {
      int made = 0, last = 0;
      for (const Step& step : plan.steps) {
        if (step.output == static_cast<int>(v)) made = step.layer;
        if (std::count(step.inputs.begin(), step.inputs.end(), static_cast<int>(v)) > 0 && step.layer >= 0)
          last = step.layer;
      }
      kept += last > made + 1;
    }
    EXPECT_LE(shared.widths.size(), 8u + kept) << "a layer's values fit in a handful of buffers, however many layers";
  }
}

TEST(Lifetimes, GroupsHideTheirInnerValues) {
  const Plan plan = build_plan(testing::plain_config());
  StepGroups groups;
  for (int s = 0; s < static_cast<int>(plan.steps.size()); ++s) {
    const std::string& name = plan.steps[static_cast<size_t>(s)].name;
    const bool joins = name.ends_with("up_proj") || name.ends_with("glu");  // gate + up + activation
    if (joins) {
      groups.back().push_back(s);
    } else {
      groups.push_back({s});
    }
  }
  const BufferPlan shared = share_buffers(plan, groups);
  expect_nothing_is_overwritten(plan, groups, shared);
  const Step* gate = plan.find("layer0.gate_proj");
  EXPECT_EQ(shared.buffer_of[static_cast<size_t>(gate->output)], -1);
  EXPECT_GE(shared.buffer_of[static_cast<size_t>(plan.find("layer0.glu")->output)], 0);
}

}  // namespace
}  // namespace doppler
