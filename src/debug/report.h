// What the debugger found, for people and for machines.
#pragma once

#include <functional>
#include <optional>

#include "base/json.h"
#include "base/log.h"
#include "debug/compare.h"
#include "model/executor.h"

namespace doppler {

using KernelOf = std::function<std::string(const Step& step)>;

// One line per stage: min, max, mean, rms, largest absolute value over the whole row at each position asked for
// (negative: from the end), layer by layer.
std::string statistics_table(const Stages& stages, const Plan& plan, std::span<const int> positions);
Json statistics_json(const Stages& stages, std::span<const int> positions);

// The walk up to the first stage out of bounds; then that step with its inputs, its kernel and the likely cause, or
// the alternatives that come closest.
std::string comparison_table(const Comparison& comparison, const Stages& run, const Plan& plan, const KernelOf& kernel);
// {stages: [{name, rel_error, cosine, worst, ok}], first_bad, cause, …}
Json comparison_json(const Comparison& comparison, const Plan& plan, const KernelOf& kernel);

struct NotFinite {
  std::string stage;
  int position = 0, column = 0;
  float value = 0;
  size_t count = 0;  // in what the tap saw
};
// The first value that is not finite in what a tap sees of a step.
std::optional<NotFinite> first_not_finite(const Step& step, std::span<const float> data, int tokens, int position);
Json not_finite_json(const NotFinite& found);

struct ScoredToken {
  int32_t id = 0;
  float logit = 0;
};
std::vector<ScoredToken> likeliest(std::span<const float> logits, size_t count);  // the likeliest first

// Lines about steps as they run, for --trace embed, attn, ffn and logits. subject_of: what a step is part of.
Trace subject_of(const Step& step);
// The steps that the traces which are on ask for; empty if they ask for none.
TapSteps traced_steps(const Plan& plan);
// Prints a line with the statistics of each step's last row.
Tap trace_tap();
// The word by which scripts find a line: LAYER_3 for what a layer puts out, FINAL_HIDDEN for what the logits are made
// of, TOP5 for the logits; empty for any other step.
std::string tag_of(const Step& step);

}  // namespace doppler
