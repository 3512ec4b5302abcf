// The cause of each planted fault is named: the step, what was computed, and what fits instead.
#include <gtest/gtest.h>

#include <map>

#include "convert/convert.h"
#include "debug/compare.h"
#include "debug/diagnosis_faults.h"
#include "engine/backend.h"
#include "ref/ref_executor.h"
#include "support/reference.h"
#include "support/scratch.h"

namespace doppler {
namespace {

constexpr int kContext = 128;

// A checkpoint with what Hugging Face recorded of it, and with all that the truth computes on it.
struct Known {
  explicit Known(const std::string& name) {
    const size_t blank = name.find(' ');
    const std::filesystem::path source = DOPPLER_TEST_DATA "/models/" + name.substr(0, blank);
    ConvertOptions options;
    options.recipe = recipe_named(blank == std::string::npos ? "f32" : name.substr(blank + 1));
    options.no_tokenizer = true;
    convert(source, scratch / "model", options);
    model = std::make_unique<LoadedModel>(LoadedModel::load(scratch / "model"));
    const testing::Reference recorded(source);
    tokens = recorded.ids("prompt_ids");
    recording.prompt_ids = tokens;
    for (const auto& [stage, values] : recorded.by_step) {
      recording.all.push_back({stage, static_cast<int>(values.size() / tokens.size()), 0, values});
    }
    everything = capture_run(*make_executor(*model, "ref", {.context = kContext}), model->plan, tokens, {});
  }
  testing::Scratch scratch;
  std::unique_ptr<LoadedModel> model;
  std::vector<int32_t> tokens;
  Stages recording, everything;
};

Known& known(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Known>> all;
  std::unique_ptr<Known>& one = all[name];
  if (!one) one = std::make_unique<Known>(name);
  return *one;
}

class Diagnosed : public ::testing::TestWithParam<UnnamedFault> {};

TEST_P(Diagnosed, NamesTheCause) {
  const UnnamedFault& fault = GetParam();
  const Known& healthy = known(fault.model);
  const LoadedModel& model = *healthy.model;
  AlteredModel faulty{model.config, model.plan, model.weights, {}, -1};
  const bool recorded = fault.against == Against::kRecording;
  const Stages& reference = recorded ? healthy.recording : healthy.everything;
  Stages run;
  if (fault.plant) {
    fault.plant(faulty);
    run = capture_run(*make_ref_executor(faulty.config, faulty.plan, faulty.weights, {.context = kContext}),
                      faulty.plan, healthy.tokens, {});
  } else {
    run = healthy.everything;
    fault.spoil(model, run);
  }
  // A backend that does not do what its plan says, or a plan that is not the model's.
  const bool backend = fault.side == Side::kBackend;
  const DebuggedModel debugged{backend ? model.config : faulty.config, backend ? model.plan : faulty.plan,
                               backend ? model.weights : faulty.weights, kContext};
  Bounds bounds = bounds_for(model.weights, !recorded);
  if (fault.bound > 0) bounds = {fault.bound, fault.bound, 10 * fault.bound};
  const Comparison ill = compare_stages(run, reference, debugged, bounds);
  EXPECT_EQ(ill.first_bad, fault.step);
  std::string nearest;
  for (const Experiment& e : ill.nearest) nearest += "\n" + e.what + " " + std::to_string(e.after);
  EXPECT_NE(ill.cause.find(fault.cause), std::string::npos) << ill.cause << nearest;
  EXPECT_EQ(ill.cause.find("not what the plan makes") != std::string::npos, backend) << ill.cause;
}

INSTANTIATE_TEST_SUITE_P(Faults, Diagnosed, ::testing::ValuesIn(testing::unnamed_faults()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace doppler
