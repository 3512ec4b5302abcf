#include "debug/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "base/error.h"
#include "debug/statistics.h"

namespace doppler {
namespace {

// The row of a stage at a position; -1 where the stage does not have it.
int row_at(const Stage& stage, int position) {
  const int row = position < 0 ? stage.rows() + position : position - stage.position;
  return row >= 0 && row < stage.rows() ? row : -1;
}

std::string number(double v) { return fmt::format(" {:>10.4g}", v); }

Json finite(double v) { return std::isfinite(v) ? Json(v) : Json(nullptr); }

void add_inputs(std::string& text, const Step& step, const Comparison& comparison, const Stages& run,
                const Plan& plan) {
  for (const int input : step.inputs) {
    const std::string& name = plan.values[static_cast<size_t>(input)].name;
    const Stage* stage = run.find(name);
    text += fmt::format("  input    {:<24}", name);
    if (stage) {
      const TensorStatistics s = statistics(stage->data);
      text += fmt::format(" rms {:.5g}, largest {:.5g}", s.rms, s.max_abs);
    }
    for (const StageComparison& c : comparison.stages) {
      if (c.name == name) text += fmt::format(", relative error {:.1e}", c.rel_error);
    }
    text += "\n";
  }
}

}  // namespace

std::string statistics_table(const Stages& stages, const Plan& plan, std::span<const int> positions) {
  std::string text;
  for (const int position : positions) {
    int layer = -2;
    text += fmt::format("{:<26}{:>11}{:>11}{:>11}{:>11}{:>11}\n", "stage", "min", "max", "mean", "rms", "max-abs");
    for (const Stage& stage : stages.all) {
      const int row = row_at(stage, position);
      if (row < 0) continue;
      const Step* step = plan.find(stage.name);
      const int here = step ? step->layer : -1;
      if (here != layer)
        text += fmt::format("── {} at position {}\n", here < 0 ? "outside the layers" : fmt::format("layer {}", here),
                            stage.position + row);
      layer = here;
      const TensorStatistics s = statistics(stage.row(row));
      text += fmt::format("{:<26}{}{}{}{}{}", stage.name, number(s.min), number(s.max), number(s.mean), number(s.rms),
                          number(s.max_abs));
      if (s.not_finite > 0) text += fmt::format("  {} of {} not finite", s.not_finite, s.count);
      text += "\n";
    }
  }
  return text;
}

Json statistics_json(const Stages& stages, std::span<const int> positions) {
  Json list = Json::array();
  for (const int position : positions) {
    for (const Stage& stage : stages.all) {
      const int row = row_at(stage, position);
      if (row < 0) continue;
      const TensorStatistics s = statistics(stage.row(row));
      list.push_back({{"name", stage.name},
                      {"position", stage.position + row},
                      {"width", stage.width},
                      {"min", finite(s.min)},
                      {"max", finite(s.max)},
                      {"mean", finite(s.mean)},
                      {"rms", finite(s.rms)},
                      {"max_abs", finite(s.max_abs)},
                      {"not_finite", s.not_finite}});
    }
  }
  return list;
}

std::string comparison_table(const Comparison& comparison, const Stages& run, const Plan& plan,
                             const KernelOf& kernel) {
  std::string text = fmt::format("{:<26}{:>12}{:>12}  {}\n", "stage", "rel. error", "cosine", "worst element");
  for (const StageComparison& c : comparison.stages) {
    text += fmt::format("{} {:<24}{:>12.2e}{:>12.7f}  ", c.ok ? " " : "✗", c.name, c.rel_error, c.cosine);
    text += c.note.empty() || c.worst.expected != c.worst.got
                ? fmt::format("[{}, {}] {:.6g}, reference {:.6g}", c.worst.position, c.worst.column, c.worst.got,
                              c.worst.expected)
                : c.note;
    text += "\n";
  }
  for (const std::string& name : comparison.not_compared) {
    text += fmt::format("  {} is in the reference, but no stage of that name is known\n", name);
  }
  if (comparison.stages.empty()) return text + "\nThere was nothing to compare.\n";
  if (comparison.first_bad.empty()) {
    return text + fmt::format("\nAll {} stages are within bounds.\n", comparison.stages.size());
  }
  text += fmt::format("\nFirst out of bounds: {}\n", comparison.first_bad);
  if (const Step* step = plan.find(comparison.first_bad)) {
    text += fmt::format("  step     {}\n", describe(*step, plan));
    add_inputs(text, *step, comparison, run, plan);
    if (const std::string name = kernel(*step); !name.empty()) text += fmt::format("  kernel   {}\n", name);
  }
  if (!comparison.suspects.empty()) {
    text += fmt::format("  The reference says nothing of {}: the fault may be there.\n",
                        fmt::join(comparison.suspects, ", "));
  }
  text += fmt::format("  likely   {}\n", comparison.cause);
  for (const Experiment& e : comparison.nearest) {
    text += fmt::format("  nearest  {}: error {:.2g} → {:.2g}\n", e.what, e.before, e.after);
  }
  return text;
}

Json comparison_json(const Comparison& comparison, const Plan& plan, const KernelOf& kernel) {
  Json stages = Json::array();
  for (const StageComparison& c : comparison.stages) {
    Json stage = {{"name", c.name},
                  {"rel_error", finite(c.rel_error)},
                  {"cosine", finite(c.cosine)},
                  {"worst",
                   {{"position", c.worst.position},
                    {"column", c.worst.column},
                    {"got", finite(c.worst.got)},
                    {"expected", finite(c.worst.expected)},
                    {"error", finite(c.element_error)}}},
                  {"ok", c.ok}};
    if (!c.note.empty()) stage["note"] = c.note;
    stages.push_back(std::move(stage));
  }
  Json json = {{"stages", std::move(stages)},
               {"first_bad", comparison.first_bad.empty() ? Json(nullptr) : Json(comparison.first_bad)},
               {"cause", comparison.cause.empty() ? Json(nullptr) : Json(comparison.cause)},
               {"nearest", Json::array()},
               {"suspects", comparison.suspects},
               {"not_compared", comparison.not_compared},
               {"bounds",
                {{"relative", comparison.bounds.relative},
                 {"added", comparison.bounds.added},
                 {"element", comparison.bounds.element}}}};
  for (const Experiment& e : comparison.nearest) {
    json["nearest"].push_back({{"what", e.what}, {"before", finite(e.before)}, {"after", finite(e.after)}});
  }
  const Step* step = comparison.first_bad.empty() ? nullptr : plan.find(comparison.first_bad);
  if (step) {
    json["step"] = describe(*step, plan);
    json["kernel"] = kernel(*step);
  }
  return json;
}

std::optional<NotFinite> first_not_finite(const Step& step, std::span<const float> data, int tokens, int position) {
  const TensorStatistics s = statistics(data);
  if (s.not_finite == 0) return std::nullopt;
  const size_t width = data.size() / static_cast<size_t>(std::max(1, tokens));
  return NotFinite{step.name, position + static_cast<int>(s.first_not_finite / width),
                   static_cast<int>(s.first_not_finite % width), data[s.first_not_finite], s.not_finite};
}

Json not_finite_json(const NotFinite& found) {
  return {{"stage", found.stage}, {"position", found.position}, {"column", found.column}, {"count", found.count}};
}

Trace subject_of(const Step& step) {
  if (step.logits_only) return Trace::kLogits;
  if (step.layer < 0) return Trace::kEmbed;
  const std::string part = step.name.substr(step.name.find('.') + 1);
  for (const char* name : {"attn_norm", "q_proj", "k_proj", "v_proj", "q_norm", "k_norm", "q_scale", "q_rope", "k_rope",
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
