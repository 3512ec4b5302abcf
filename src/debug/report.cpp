#include "debug/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

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
      if (const std::string tag = step ? tag_of(*step) : ""; !tag.empty()) text += "  " + tag;
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
  const std::vector<int>& layers = trace_limits().layers;
  TapSteps steps;
  for (const Step& step : plan.steps) {
    const bool here =
        layers.empty() || step.layer < 0 || std::find(layers.begin(), layers.end(), step.layer) != layers.end();
    if (here && tracing(subject_of(step))) steps.insert(step.name);
  }
  return steps;
}

std::string tag_of(const Step& step) {
  if (step.name == "final_norm") return "FINAL_HIDDEN";
  if (step.name == "logits") return "TOP5";
  return step.layer >= 0 && step.name.ends_with(".out") ? fmt::format("LAYER_{}", step.layer) : "";
}

Tap trace_tap() {
  // Decoded tokens of each step: what it is first seen with is the prompt.
  return [decoded = std::map<std::string, int>()](const Step& step, std::span<const float> data, int tokens,
                                                  int position) mutable {
    if (tokens < 1) return;
    if (const int most = trace_limits().decode_steps; most > 0) {
      const auto [seen, first] = decoded.try_emplace(step.name, 0);
      if (!first && (seen->second += tokens) > most) return;
    }
    const std::span<const float> row = data.last(data.size() / static_cast<size_t>(tokens));
    const TensorStatistics s = statistics(row);
    std::string line = fmt::format("{:<22} position {:<5} min {:.4g} max {:.4g} mean {:.4g} rms {:.4g} maxAbs={:.4g}{}",
                                   step.name, position + tokens - 1, s.min, s.max, s.mean, s.rms, s.max_abs,
                                   s.not_finite > 0 ? " NOT FINITE" : "");
    if (const std::string tag = tag_of(step); !tag.empty()) line = tag + " " + line;
    if (step.name == "logits") {
      for (const ScoredToken& t : likeliest(row, 5)) line += fmt::format(" {}:{:.2f}", t.id, t.logit);
    }
    trace(subject_of(step), line);
  };
}

std::vector<ScoredToken> likeliest(std::span<const float> logits, size_t count) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  count = std::min(count, order.size());
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
      [&](int32_t x, int32_t y) { return logits[static_cast<size_t>(x)] > logits[static_cast<size_t>(y)]; });
  std::vector<ScoredToken> top;
  for (size_t i = 0; i < count; ++i) top.push_back({order[i], logits[static_cast<size_t>(order[i])]});
  return top;
}

}  // namespace doppler
