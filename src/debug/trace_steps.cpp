#include "debug/trace_steps.h"

#include <fmt/format.h>

#include "debug/statistics.h"

namespace doppler {

Trace subject_of(const Step& step) {
  if (step.logits_only) return Trace::kLogits;
  if (step.layer < 0) return Trace::kEmbed;
  const std::string part = step.name.substr(step.name.find('.') + 1);
  for (const char* name : {"attn_norm", "q_proj", "k_proj", "v_proj", "q_norm", "k_norm", "q_rope", "k_rope",
                           "attention", "attn_out", "post_attn_norm", "attn_residual"}) {
    if (part == name) return Trace::kAttn;
  }
  return Trace::kFfn;
}

TapSteps traced_steps(const Plan& plan) {
  TapSteps steps;
  for (const Step& step : plan.steps) {
    if (tracing(subject_of(step))) steps.insert(step.name);
  }
  return steps;
}

Tap trace_tap() {
  return [](const Step& step, std::span<const float> data, int tokens, int position) {
    if (tokens < 1) return;
    const TensorStatistics s = statistics(data.last(data.size() / static_cast<size_t>(tokens)));
    trace(subject_of(step),
          fmt::format("{:<22} position {:<5} min {:.4g} max {:.4g} mean {:.4g} rms {:.4g}{}", step.name,
                      position + tokens - 1, s.min, s.max, s.mean, s.rms, s.not_finite > 0 ? " NOT FINITE" : ""));
  };
}

}  // namespace doppler
