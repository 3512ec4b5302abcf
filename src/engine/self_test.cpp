#include "engine/backend.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "cpu/cpu_executor.h"
#include "debug/compare.h"
#include "engine/not_finite.h"
#include "format/decode.h"

namespace doppler {
namespace {

constexpr size_t kLayers = 2;
constexpr int kTokens = 5;

// The first layers as a model of their own; the weights stay where they are.
struct ShortModel {
  ModelConfig config;
  Plan plan;
  Weights weights;

  explicit ShortModel(const LoadedModel& model) : config(model.config) {
    config.layers.resize(std::min(config.layers.size(), kLayers));
    plan = build_plan(config);
    for (const Step& step : plan.steps) {
      for (const WeightUse& use : step.weights) weights.add(use.slot, model.weights.at(use.slot));
    }
  }
};

Stages captured(Executor& executor, const Plan& plan, std::span<const int32_t> tokens) {
  TapSteps steps;
  for (const Step& step : plan.steps) {
    if (step.layer >= 0 && step.layer < static_cast<int>(kLayers)) steps.insert(step.name);
  }
  Capture capture{std::string(executor.name())};
  Context context(executor);
  executor.set_tap_at(capture.tap(), steps);
  context.forward(tokens, Logits::kNone);
  executor.set_tap(nullptr);
  return capture.take();
}

}  // namespace

void self_test(Executor& executor, const LoadedModel& model) {
  std::vector<int32_t> tokens;  // any known tokens do
  for (int i = 0; i < kTokens; ++i) tokens.push_back((2 + 131 * i) % model.config.vocab);
  const ShortModel small(model);
  const auto cpu = make_cpu_executor(small.config, small.plan, small.weights,
                                     {.context = kTokens, .adapters = executor.model().adapters}, {.pack = false});
  cpu->set_model({&small.config, &small.plan, &small.weights});
  const Stages expected = captured(*cpu, small.plan, tokens), got = captured(executor, model.plan, tokens);
  const Comparison comparison =
      compare_stages(got, expected, {model.config, model.plan, model.weights, kTokens, executor.model().adapters.get()},
                     bounds_for(model.weights, true));
  if (tracing(Trace::kKernels)) {
    trace(Trace::kKernels, fmt::format("self-test: {} stages compared with the CPU", comparison.stages.size()));
  }
  if (comparison.first_bad.empty() && !comparison.stages.empty()) return;
  for (const Stage& stage : expected.all) {
    if (!all_finite(stage.data.data(), stage.data.size())) fail(explain_not_finite(*cpu, tokens, tokens.size()));
  }
  const Step* step = model.plan.find(comparison.first_bad);
  const std::string kernel = step ? executor.kernel_of(*step) : "";
  fail({.code = ErrorCode::kDevice,
        .what = fmt::format("the {} backend computes wrongly on this machine", executor.name()),
        .where = comparison.first_bad + (kernel.empty() ? "" : ", " + kernel),
        .expected = "what the CPU computes",
        .got = comparison.stages.empty()
                   ? "nothing to compare"
                   : fmt::format("relative error {:.2g}; {}", comparison.stages.back().rel_error, comparison.cause),
        .todo = "Use --backend cpu, or --no-self-test to go on all the same"});
}

}  // namespace doppler
