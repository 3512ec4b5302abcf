#include "debug/alternatives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/half.h"
#include "debug/change_list.h"

namespace doppler {
namespace {

std::string or_none(double value) { return value > 0 ? plain_number(value) : "none"; }

void norm_choices(ChangeList& list, const Norm& op) {
  for (const float offset : {0.f, 1.f}) {
    if (offset == op.offset) continue;
    list.add("norm offset", plain_number(op.offset), plain_number(offset),
             [offset](Formula& f) { std::get<Norm>(f.op).offset = offset; });
  }
  list.add("the norm", "applied", "left out", [](Formula& f) { f.left_out = true; });
  const int width = list.width(), head = list.model().config.head_dim;
  const auto group_name = [&](int group) {
    return group == width ? "the whole width" : fmt::format("{} columns", group);
  };
  for (const int group : {width, head}) {
    if (group == op.group || group < 1 || width % group != 0) continue;
    list.add("norm over", group_name(op.group), group_name(group),
             [group](Formula& f) { std::get<Norm>(f.op).group = group; });
  }
  list.add("mean", "kept", "subtracted first", [](Formula& f) { f.centred = true; });
  list.add("norm weight", "applied", "left out", [](Formula& f) { f.unweighted = true; });
  for (const float eps : {1e-5f, 1e-6f, 1e-8f, 1e-12f, 1e-4f, 1e-3f}) {
    if (eps == op.eps) continue;
    list.add("eps", plain_number(op.eps), plain_number(eps), [eps](Formula& f) { std::get<Norm>(f.op).eps = eps; });
  }
}

// Pages of the GPU's cache, and tiles of keys of the CPU's, in the place of each other: a table that was not brought
// up to date. Queries before the first wrong one read the right ones.
void stale_pages(ChangeList& list, int first_bad, int rows) {
  const auto named = [](int begin, int size) { return fmt::format("positions {} to {}", begin, begin + size - 1); };
  for (const int size : {64, 16}) {
    for (int begin = 0; begin <= std::min(rows - 1, 255); begin += size) {
      for (int other = 0; other + size <= std::min(rows, 256); other += size) {
        if (other == begin) continue;
        list.add("page of the cache for " + named(begin, size), "its own", "that of " + named(other, size),
                 [stale = StalePage{begin, other, size, first_bad}](Formula& f) { f.attention.stale = stale; });
      }
    }
  }
}

void attention_choices(ChangeList& list, const Attention& op, int first_bad, int rows) {
  const ModelConfig& config = list.model().config;
  std::vector<int> windows{0};
  if (op.window > 0) windows.insert(windows.end(), {op.window - 1, op.window + 1});
  for (const LayerConfig& layer : config.layers) windows.push_back(layer.window);
  windows.insert(windows.end(), {first_bad, first_bad + 1, 2 * op.window, op.window / 2});
  for (int w = 1; w < std::min(rows, 256); ++w) windows.push_back(w);
  std::set<int> seen{op.window};
  for (const int window : windows) {
    if (window < 0 || window >= rows + 2 || !seen.insert(window).second) continue;
    list.add("window", or_none(op.window), or_none(window),
             [window](Formula& f) { std::get<Attention>(f.op).window = window; });
  }
  for (const float cap : {0.f, 50.f, 30.f, 20.f, 15.f}) {
    if (cap == op.softcap) continue;
    list.add("soft-cap of the scores", or_none(op.softcap), or_none(cap),
             [cap](Formula& f) { std::get<Attention>(f.op).softcap = cap; });
  }
  const double dim = op.head_dim, share = static_cast<double>(config.hidden) / op.heads;
  const std::pair<double, std::string> scales[] = {{1 / std::sqrt(dim), "1/√head_dim"},
                                                   {1, "no scale"},
                                                   {1 / std::sqrt(share), "1/√(hidden/heads)"},
                                                   {1 / dim, "1/head_dim"},
                                                   {1 / std::sqrt(static_cast<double>(config.hidden)), "1/√hidden"},
                                                   {std::sqrt(dim), "√head_dim"},
                                                   {1 / std::sqrt(2 * dim), "1/√(2·head_dim)"},
                                                   {1 / std::sqrt(dim / 2), "1/√(head_dim/2)"}};
  for (const auto& [scale, name] : scales) {
    if (std::fabs(scale / op.scale - 1) < 1e-6) continue;
    list.add("query scale", plain_number(op.scale), fmt::format("{:g} ({})", scale, name),
             [s = static_cast<float>(scale)](Formula& f) { std::get<Attention>(f.op).scale = s; });
  }
  const std::string sinks = list.step().layer < 0 ? "" : fmt::format("layer{}.sinks", list.step().layer);
  if (!op.sinks && list.model().weights.find(sinks)) {
    list.add("sinks", "left out", "applied", [sinks](Formula& f) {
      std::get<Attention>(f.op).sinks = true;
      f.matrix.slots = {sinks};
    });
  }
  if (op.sinks) list.add("sinks", "applied", "left out", [](Formula& f) { std::get<Attention>(f.op).sinks = false; });
  if (op.ahead > 0) {
    list.add("newest key that is seen", "behind the token", "the token's own",
             [](Formula& f) { std::get<Attention>(f.op).ahead = 0; });
  }
  list.add("newest key that is seen", "the token's own", "the one before", [](Formula& f) { f.attention.newest = -1; });
  list.add("newest key that is seen", "the token's own", "the one after", [](Formula& f) { f.attention.newest = 1; });
  list.add("newest key that is seen", "the token's own", "the last of all",
           [rows](Formula& f) { f.attention.newest = rows; });
  if (op.kv_heads > 1 && op.kv_heads < op.heads) {
    list.add("key head of head h", "h / group", "h % key heads",
             [](Formula& f) { f.attention.map = HeadMap::kModulo; });
  }
  if (op.kv_heads > 1) {
    list.add("key heads", "in their order", "in reverse order",
             [](Formula& f) { f.attention.map = HeadMap::kBackwards; });
  }
  for (const int shift : {1, -1}) {
    const std::string there = shift > 0 ? "one position later" : "one position earlier";
    list.add("keys and values in the cache", "at their position", there,
             [shift](Formula& f) { f.attention.key_shift = f.attention.value_shift = shift; });
    list.add("keys in the cache", "at their position", there, [shift](Formula& f) { f.attention.key_shift = shift; });
    list.add("values in the cache", "at their position", there,
             [shift](Formula& f) { f.attention.value_shift = shift; });
  }
  stale_pages(list, first_bad, rows);
  for (int j = 0; j < std::min(rows - 1, 128); ++j) {
    list.add("token seen later", "every one", fmt::format("all but that of position {}", j),
             [j](Formula& f) { f.attention.lost = j; });
  }
}

double relu(double g, double) { return std::max(g, 0.0); }
double relu_squared(double g, double) { return g > 0 ? g * g : 0; }
double gelu_erf(double g, double) { return 0.5 * g * (1 + std::erf(g / std::sqrt(2.0))); }
double gelu_quick(double g, double) { return g / (1 + std::exp(-1.702 * g)); }
double sigmoid_gate(double g, double) { return 1 / (1 + std::exp(-g)); }
double identity(double g, double) { return g; }

void glu_choices(ChangeList& list, const Glu& op) {
  const std::string planned(name_of(op.activation));
  for (const Activation a : {Activation::kSilu, Activation::kGeluTanh}) {
    if (a == op.activation) continue;
    list.add("activation", planned, std::string(name_of(a)), [a](Formula& f) { std::get<Glu>(f.op).activation = a; });
  }
  const std::pair<Activate, const char*> others[] = {{gelu_erf, "gelu (erf)"},
                                                     {relu, "relu"},
                                                     {gelu_quick, "gelu (x·sigmoid(1.702x))"},
                                                     {relu_squared, "relu squared"},
                                                     {sigmoid_gate, "sigmoid"},
                                                     {identity, "none"}};
  for (const auto& [activate, name] : others) {
    list.add("activation", planned, name, [a = activate](Formula& f) { f.activate = a; });
  }
  const auto clamped = [&](float limit, float alpha) {
    return [limit, alpha](Formula& f) {
      auto& glu = std::get<Glu>(f.op);
      glu = {Activation::kClampedSwiglu, glu.interleaved, limit, alpha};
    };
  };
  if (op.activation != Activation::kClampedSwiglu) {
    list.add("activation", planned, "clamped swiglu (limit 7, alpha 1.702)", clamped(7, 1.702f));
  } else {
    for (const float limit : {0.f, 7.f, 10.f, 5.f}) {
      if (limit != op.limit)
        list.add("limit of the activation", or_none(op.limit), or_none(limit), clamped(limit, op.alpha));
    }
    for (const float alpha : {1.f, 1.702f}) {
      if (alpha != op.alpha)
        list.add("alpha of the activation", plain_number(op.alpha), plain_number(alpha), clamped(op.limit, alpha));
    }
    list.add("what is added to up", "1", "nothing", [](Formula& f) { f.plus = -1; });
  }
  list.add("gate and up", "in their order", "swapped", [](Formula& f) { f.swapped = true; });
  if (op.interleaved) list.add("gate and up", "interleaved", "in halves", [](Formula& f) { f.halves = true; });
}

void scale_choices(ChangeList& list, const std::string& subject, double planned,
                   std::vector<std::pair<double, std::string>> others,
                   const std::function<void(Formula&, double)>& set) {
  for (const auto& [value, name] : others) {
    if (std::fabs(value - planned) < 1e-6 * std::fabs(planned)) continue;
    list.add(subject, plain_number(planned), fmt::format("{:g}{}", value, name.empty() ? "" : " (" + name + ")"),
             [set, v = value](Formula& f) { set(f, v); });
  }
}

void small_choices(ChangeList& list, const Step& step) {
  const ModelConfig& config = list.model().config;
  const double root = std::sqrt(static_cast<double>(config.hidden)), layers = std::max(1, config.layer_count());
  if (const auto* op = std::get_if<Embed>(&step.op)) {
    const auto bf16 = bf16_to_f32(f32_to_bf16(static_cast<float>(root)));
    scale_choices(list, "embedding scale", op->scale,
                  {{1, ""}, {root, "√hidden"}, {bf16, "√hidden in bf16"}, {1 / root, "1/√hidden"}},
                  [](Formula& f, double v) { std::get<Embed>(f.op).scale = static_cast<float>(v); });
    list.add("token ids", "as they are", "one higher", [](Formula& f) { f.token_shift = 1; });
    list.add("token ids", "as they are", "one lower", [](Formula& f) { f.token_shift = -1; });
  } else if (const auto* add = std::get_if<Add>(&step.op)) {
    scale_choices(list, "residual multiplier", add->scale,
                  {{1, ""},
                   {0, "the branch is left out"},
                   {config.residual_scale, ""},
                   {1.4 / std::sqrt(layers), "1.4/√layers"},
                   {1 / std::sqrt(2 * layers), "1/√(2·layers)"}},
                  [](Formula& f, double v) { std::get<Add>(f.op).scale = static_cast<float>(v); });
  } else if (const auto* scale = std::get_if<Scale>(&step.op)) {
    scale_choices(list, "factor", scale->factor, {{1, ""}, {1 / scale->factor, "its inverse"}},
                  [](Formula& f, double v) { std::get<Scale>(f.op).factor = static_cast<float>(v); });
    if (scale->beta != 0) {
      list.add("scale by position", "applied", "left out", [](Formula& f) { f.left_out = true; });
      list.add("position", "p", "p + 1", [](Formula& f) { f.shift = 1; });
      for (const int length : {config.max_context, 8192, 4096}) {
        list.add("length of the scale by position", fmt::format("{}", scale->length), fmt::format("{}", length),
                 [length](Formula& f) { std::get<Scale>(f.op).length = length; });
      }
    }
  } else if (const auto* soft = std::get_if<SoftCap>(&step.op)) {
    for (const float cap : {0.f, 30.f, 50.f, 20.f, 15.f}) {
      if (cap != soft->cap)
        list.add("soft-cap", or_none(soft->cap), or_none(cap),
                 [cap](Formula& f) { std::get<SoftCap>(f.op).cap = cap; });
    }
  } else if (const auto* route = std::get_if<Route>(&step.op)) {
    const std::string planned = route->over_all ? "softmax over all experts" : "softmax over the chosen experts";
    const std::pair<Routing, const char*> others[] = {{Routing::kChosen, "softmax over the chosen experts"},
                                                      {Routing::kAll, "softmax over all experts"},
                                                      {Routing::kSigmoidNormalized, "sigmoid, normalised"},
                                                      {Routing::kSigmoid, "sigmoid"},
                                                      {Routing::kEqual, "all equal"}};
    for (const auto& [routing, name] : others) {
      if (name == planned) continue;
      list.add("experts' weights", planned, name, [r = routing](Formula& f) {
        std::get<Route>(f.op).over_all = false;
        f.routing = r;
      });
    }
  } else if (std::holds_alternative<Combine>(step.op)) {
    list.add("experts' weights", "applied", "left out", [](Formula& f) { f.unweighted = true; });
  } else if (std::holds_alternative<MatMul>(step.op) && step.logits_only) {
    for (const double cap : {30.0, 50.0, 20.0, 15.0}) {
      list.add("soft-cap", "none", or_none(cap), [cap](Formula& f) { f.cap = cap; });
    }
  }
}

// Another value of the layer taken for an input: a buffer mixed up, a branch taken at another place.
void other_inputs(ChangeList& list, const Recomputation& r, const Step& step) {
  const Plan& plan = r.model().plan;
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const Value& own = plan.values[static_cast<size_t>(step.inputs[i])];
    for (int v = std::max(0, step.output - 48); v < step.output; ++v) {
      const Value& other = plan.values[static_cast<size_t>(v)];
      if (v == step.inputs[i] || other.width != own.width || !r.recorded(v)) continue;
      list.add(step.inputs.size() > 1 ? fmt::format("input {}", i) : "the input", own.name, other.name,
               [i, v](Formula& f) { f.inputs[i] = v; });
    }
  }
}

// A norm of queries or keys after their rotation instead of before it.
void norm_after_rope(std::vector<Change>& changes, const Recomputation& r) {
  const Plan& plan = r.model().plan;
  Change both{{}, "queries and keys", "normed, then turned", "turned, then normed"};
  for (size_t n = 0; n < plan.steps.size(); ++n) {
    const Step& norm = plan.steps[n];
    if (!std::holds_alternative<Norm>(norm.op)) continue;
    for (size_t t = n + 1; t < plan.steps.size(); ++t) {
      const Step& turn = plan.steps[t];
      if (!std::holds_alternative<Rope>(turn.op) || turn.inputs[0] != norm.output) continue;
      const auto in = [&](size_t s) { return std::find(r.steps().begin(), r.steps().end(), s) != r.steps().end(); };
      if (!in(n) && !in(t)) continue;
      both.edits.emplace_back(n, [v = turn.output](Formula& f) { f.inputs[0] = v; });
      both.edits.emplace_back(t, [v = norm.inputs[0]](Formula& f) { f.inputs[0] = v; });
      for (size_t a = t + 1; a < plan.steps.size(); ++a) {
        for (size_t i = 0; i < plan.steps[a].inputs.size(); ++i) {
          if (plan.steps[a].inputs[i] != turn.output) continue;
          both.edits.emplace_back(a, [i, v = norm.output](Formula& f) { f.inputs[i] = v; });
        }
      }
    }
  }
  if (!both.edits.empty()) changes.push_back(std::move(both));
}

// More or fewer experts for a token.
void expert_counts(std::vector<Change>& changes, const Recomputation& r) {
  const Plan& plan = r.model().plan;
  if (std::holds_alternative<Route>(r.target().op)) return;  // its output has another width then
  int planned = 0;
  std::vector<size_t> steps;
  for (const size_t s : r.steps()) {
    const Operation& op = plan.steps[s].op;
    if (const auto* route = std::get_if<Route>(&op)) planned = route->k;
    if (std::holds_alternative<Route>(op) || std::holds_alternative<ExpertMatMul>(op) ||
        std::holds_alternative<Combine>(op))
      steps.push_back(s);
  }
  if (planned == 0 || !std::holds_alternative<Combine>(plan.steps[steps.back()].op)) return;
  for (const int k : {planned - 1, planned + 1, 1, 2, 4, 6, 8, 10}) {
    if (k < 1 || k == planned || k > r.model().config.experts) continue;
    Change change{{}, "experts of a token", fmt::format("{}", planned), fmt::format("{}", k)};
    for (const size_t s : steps) {
      change.edits.emplace_back(s, [k](Formula& f) {
        if (auto* route = std::get_if<Route>(&f.op)) route->k = k;
        if (auto* experts = std::get_if<ExpertMatMul>(&f.op)) experts->k = k;
        if (auto* combine = std::get_if<Combine>(&f.op)) combine->k = k;
      });
    }
    changes.push_back(std::move(change));
  }
}

}  // namespace

std::vector<Change> other_choices(const Recomputation& r, int first_bad) {
  ChangeList list(r.model());
  for (const size_t s : r.steps()) {
    const Step& step = r.model().plan.steps[s];
    list.begin(s);
    if (const auto* norm = std::get_if<Norm>(&step.op)) norm_choices(list, *norm);
    if (const auto* rope = std::get_if<Rope>(&step.op)) rope_choices(list, *rope, first_bad);
    if (const auto* a = std::get_if<Attention>(&step.op)) attention_choices(list, *a, first_bad, r.rows());
    if (const auto* glu = std::get_if<Glu>(&step.op)) glu_choices(list, *glu);
    small_choices(list, step);
  }
  std::vector<Change> changes = list.take();
  norm_after_rope(changes, r);
  expert_counts(changes, r);
  ChangeList inputs(r.model());
  for (const size_t s : r.steps()) {
    inputs.begin(s);
    other_inputs(inputs, r, r.model().plan.steps[s]);
  }
  for (Change& change : inputs.take()) changes.push_back(std::move(change));
  return changes;
}

}  // namespace doppler
