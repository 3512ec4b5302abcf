#include "debug/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "debug/causes.h"
#include "debug/statistics.h"

namespace doppler {
namespace {

// Steps of a layer, and of the ends, in the order of computation, whichever of them a model has.
constexpr std::string_view kLayerOrder[] = {
    "attn_norm",     "q_proj",       "k_proj",       "v_proj",    "q_norm",          "k_norm",
    "q_scale",       "q_rope",       "k_rope",       "attention", "attn_out",        "post_attn_norm",
    "attn_residual", "pre_ffn_norm", "router",       "route",     "experts_gate_up", "gate_proj",
    "up_proj",       "glu",          "experts_down", "ffn_out",   "post_ffn_norm",   "out"};
constexpr std::string_view kEnds[] = {"final_norm", "raw_logits", "scaled_logits", "logits"};
constexpr int kMaxLayers = 1 << 20;

// Where a stage comes in the computation; -1 for a name nobody knows.
int64_t rank_of(std::string_view name) {
  if (name == "embed") return 0;
  const auto in = [](std::string_view word, const auto& list) -> int64_t {
    const auto found = std::find(std::begin(list), std::end(list), word);
    return found == std::end(list) ? -1 : found - std::begin(list);
  };
  if (const int64_t end = in(name, kEnds); end >= 0) return int64_t{kMaxLayers} * 100 + end;
  const size_t dot = name.find('.');
  if (name.substr(0, 5) != "layer" || dot == std::string_view::npos || dot == 5 || dot > 11) return -1;
  int layer = 0;
  for (const char c : name.substr(5, dot - 5)) {
    if (c < '0' || c > '9') return -1;
    layer = layer * 10 + (c - '0');
  }
  const int64_t place = in(name.substr(dot + 1), kLayerOrder);
  return place < 0 ? -1 : 1 + int64_t{layer} * 100 + place;
}

std::string layer_of(const std::string& name) { return name.substr(0, name.find('.')); }

constexpr double kGrowth = 3;

// Positions to leave out: rounding sent their token to another expert, which is no small error and no fault either.
using LeftOut = std::set<int>;

StageComparison compare_one(const Stage& got, const Stage& expected, const Bounds& bounds,
                            const StageComparison& inherited, const LeftOut& left_out) {
  StageComparison c;
  c.name = got.name;
  if (got.width != expected.width) {
    c.ok = false;
    c.note = fmt::format("has {} columns, the reference {}", got.width, expected.width);
    return c;
  }
  const AlignedRows a = align(got, expected);
  if (a.rows == 0) {
    c.note = "no position in common";
    return c;
  }
  const double rms = statistics(a.expected).rms;
  double difference = 0, size = 0, own = 0, inner = 0;
  bool finite = true;
  for (size_t i = 0; i < a.got.size(); ++i) {
    const double g = a.got[i], e = a.expected[i];
    if (!left_out.empty() && left_out.count(a.position + static_cast<int>(i) / a.width) > 0) continue;
    const bool here = std::isfinite(g) || !std::isfinite(e);
    const double d = here ? std::fabs(g - e) : HUGE_VAL;
    const double ratio = d == 0 ? 0 : d / (std::fabs(e) + rms + 1e-30);
    if (ratio > c.element_error || (!here && finite)) {
      c.element_error = ratio;
      c.worst = {a.position + static_cast<int>(i) / a.width, static_cast<int>(i) % a.width, a.got[i], a.expected[i]};
    }
    finite = finite && here;
    difference += d * d;
    size += e * e;
    own += g * g;
    inner += g * e;
  }
  c.rel_error = size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
  c.cosine = size > 0 && own > 0 ? inner / std::sqrt(size * own) : (size == own ? 1 : 0);
  if (!finite) c.note = "not finite";
  c.ok = finite && c.rel_error <= bounds.relative && c.rel_error <= bounds.added + kGrowth * inherited.rel_error &&
         c.element_error <= bounds.element + kGrowth * inherited.element_error;
  return c;
}

void take_worse(StageComparison& worst, const StageComparison& c) {
  worst.rel_error = std::max(worst.rel_error, c.rel_error);
  worst.element_error = std::max(worst.element_error, c.element_error);
}

// The worst errors of a step's inputs; of the stage compared last where an input was not compared.
StageComparison inherited_by(const Step& step, const Plan& plan, const std::vector<StageComparison>& before) {
  StageComparison worst;
  for (const int input : step.inputs) {
    const std::string& name = plan.values[static_cast<size_t>(input)].name;
    const auto found = std::find_if(before.begin(), before.end(), [&](const auto& c) { return c.name == name; });
    if (found == before.end() && before.empty()) continue;
    take_worse(worst, found == before.end() ? before.back() : *found);
  }
  return worst;
}

// Adds the errors of an attention's inputs over all positions: the tokens it compares see those that are left out too.
void add_seen(const Step& step, const Plan& plan, const Stages& run, const Stages& reference, StageComparison& worst) {
  for (const int input : step.inputs) {
    const std::string& name = plan.values[static_cast<size_t>(input)].name;
    const Stage *got = run.find(name), *expected = reference.find(name);
    if (!got || !expected) continue;
    take_worse(worst, compare_one(*got, *expected, {}, {}, {}));
  }
}

// Adds the positions whose chosen experts differ though the router's scores were as good as equal.
void add_near_ties(const Step& step, const Plan& plan, const Stage& got, const Stages& reference, const Bounds& bounds,
                   LeftOut& left_out) {
  const Stage* expected = reference.find(step.name);
  const Stage* scores = reference.find(plan.values[static_cast<size_t>(step.inputs[0])].name);
  const int k = std::get<Route>(step.op).k;
  if (!expected || !scores || got.width != 2 * k || expected->width != 2 * k) return;
  const double near = 4 * bounds.added * statistics(scores->data).rms;
  const int first = std::max({got.position, expected->position, scores->position});
  const int last =
      std::min({got.position + got.rows(), expected->position + expected->rows(), scores->position + scores->rows()});
  for (int p = first; p < last; ++p) {
    const std::span<const float> score = scores->row(p - scores->position);
    for (int i = 0; i < k; ++i) {
      const auto mine = static_cast<size_t>(got.row(p - got.position)[static_cast<size_t>(i)]);
      const auto theirs = static_cast<size_t>(expected->row(p - expected->position)[static_cast<size_t>(i)]);
      if (mine == theirs || mine >= score.size() || theirs >= score.size()) continue;
      if (std::fabs(score[mine] - score[theirs]) <= near) left_out.insert(p);
    }
  }
}

}  // namespace

AlignedRows align(const Stage& got, const Stage& expected) {
  const int first = std::max(got.position, expected.position);
  const int last = std::min(got.position + got.rows(), expected.position + expected.rows());
  AlignedRows a;
  a.width = got.width;
  a.position = first;
  a.rows = std::max(0, last - first);
  const auto part = [&](const Stage& stage) {
    const auto width = static_cast<size_t>(stage.width);
    return std::span(stage.data)
        .subspan(static_cast<size_t>(first - stage.position) * width, static_cast<size_t>(a.rows) * width);
  };
  if (a.rows > 0) {
    a.got = part(got);
    a.expected = part(expected);
  }
  return a;
}

Stages with_our_names(const Stages& reference, const Plan& plan, std::vector<std::string>& unknown) {
  Stages ours = reference;
  for (Stage& stage : ours.all) {
    const std::string layer = layer_of(stage.name);
    if (stage.name != layer + ".post_attn_norm" || plan.find(stage.name)) continue;
    if (!reference.find(layer + ".pre_ffn_norm") && plan.find(layer + ".pre_ffn_norm")) {
      stage.name = layer + ".pre_ffn_norm";
    }
  }
  std::erase_if(ours.all, [&](const Stage& stage) {
    if (rank_of(stage.name) >= 0) return false;
    unknown.push_back(stage.name);
    return true;
  });
  std::stable_sort(ours.all.begin(), ours.all.end(),
                   [](const Stage& a, const Stage& b) { return rank_of(a.name) < rank_of(b.name); });
  return ours;
}

Comparison compare_stages(const Stages& run, const Stages& original, const DebuggedModel& model, const Bounds& bounds,
                          bool past_first) {
  const Plan& plan = model.plan;
  Comparison result;
  result.bounds = bounds;
  const Stages reference = with_our_names(original, plan, result.not_compared);
  int64_t last_good = -1;
  LeftOut left_out;
  for (const Stage& expected : reference.all) {
    const Step* step = plan.find(expected.name);
    const Stage* got = run.find(expected.name);
    if (step && !got) continue;                            // not tapped
    if (!step && expected.name == "raw_logits") continue;  // the logits before their cap: the cap itself is compared
    StageComparison c;
    if (step && std::holds_alternative<Route>(step->op)) add_near_ties(*step, plan, *got, reference, bounds, left_out);
    if (step) {
      StageComparison inherited = inherited_by(*step, plan, result.stages);
      if (!left_out.empty() && std::holds_alternative<Attention>(step->op)) {
        add_seen(*step, plan, run, reference, inherited);
      }
      c = compare_one(*got, expected, bounds, inherited, left_out);
    } else {
      c.name = expected.name;
      c.ok = false;
      c.rel_error = 1;
      c.cosine = 0;
      c.note = "the run has no such step";
    }
    result.stages.push_back(c);
    if (c.ok) {
      if (result.first_bad.empty()) last_good = rank_of(c.name);
      continue;
    }
    if (result.first_bad.empty()) {
      result.first_bad = c.name;
      const std::vector<int> silent(left_out.begin(), left_out.end());
      Diagnosis diagnosis = diagnose({run, reference, model, bounds, c, silent});
      result.cause = std::move(diagnosis.cause);
      result.nearest = std::move(diagnosis.nearest);
      for (const Step& between : plan.steps) {
        const int64_t rank = rank_of(between.name);
        if (rank > last_good && rank < rank_of(c.name) && !reference.find(between.name)) {
          result.suspects.push_back(between.name);
        }
      }
    }
    if (!past_first) break;
  }
  return result;
}

}  // namespace doppler
