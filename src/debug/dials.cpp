// Numbers that may have any value.
#include <cmath>

#include "debug/alternatives.h"
#include "debug/change_list.h"

namespace doppler {
namespace {

std::string fitted(double value) {
  const double unit = std::pow(10.0, std::floor(std::log10(std::fabs(value) + 1e-300)) - 3);
  return plain_number(std::round(value / unit) * unit);
}

const Step* maker_of(const Plan& plan, int value) {
  for (const Step& step : plan.steps) {
    if (step.output == value) return &step;
  }
  return nullptr;
}

void original_context(Formula& f, double value) {
  f.rope.original_context = value;
  if (auto* scale = std::get_if<Scale>(&f.op)) scale->length = static_cast<int>(std::lround(value));
}

}  // namespace

std::vector<Dial> dials(const Recomputation& r) {
  std::vector<Dial> list;
  for (const size_t s : r.steps()) {
    const Operation& op = r.model().plan.steps[s].op;
    const auto add = [&](const char* subject, double planned, double from, double to, bool ratio, auto turn) {
      const std::string now = plain_number(planned);
      for (Dial& dial : list) {
        const bool same = r.model().plan.steps[dial.steps[0]].op.index() == op.index();
        if (same && dial.subject == subject && dial.planned == now) return dial.steps.push_back(s);
      }
      list.push_back({{s}, subject, now, from, to, ratio, turn});
    };
    const auto number = [](auto member) {
      return [member](Formula& f, double v) { member(f) = static_cast<float>(v); };
    };
    if (const auto* o = std::get_if<Embed>(&op)) {
      add("embedding scale", o->scale, 1e-3, 1e3, true,
          number([](Formula& f) -> float& { return std::get<Embed>(f.op).scale; }));
    } else if (const auto* norm = std::get_if<Norm>(&op)) {
      add("eps", norm->eps, 1e-12, 1, true, number([](Formula& f) -> float& { return std::get<Norm>(f.op).eps; }));
      add("norm offset", norm->offset, -2, 2, false,
          number([](Formula& f) -> float& { return std::get<Norm>(f.op).offset; }));
    } else if (const auto* rope = std::get_if<Rope>(&op)) {
      const RopeConfig& config = r.model().config.ropes[static_cast<size_t>(rope->rope)];
      add("rope base", config.theta, 10, 1e9, true, [](Formula& f, double v) { f.rope.theta = v; });
      if (config.scaling == RopeScaling::kYarn || config.scaling == RopeScaling::kLongRope) {
        const double now = make_rope_table(config, rope->head_dim, r.model().context).magnitude;
        add("attention factor of the rope", now, 0.25, 4, true,
            [](Formula& f, double v) { f.rope.attention_factor = v; });
      }
      if (config.query_beta == 0 && config.original_context > 0 &&
          r.model().plan.steps[s].name.find(".q_") != std::string::npos) {
        add("beta of a scale by position", 0, 1e-3, 10, true,
            [length = static_cast<int>(config.original_context)](Formula& f, double v) {
              f.beta = v, f.length = length;
            });
      }
      if (config.scaling != RopeScaling::kNone) {
        add("original context of the rope scaling", config.original_context, 8, 1 << 20, true, original_context);
        // A scale by position counts in the same number.
        const Step* before = maker_of(r.model().plan, r.model().plan.steps[s].inputs[0]);
        const auto* scale = before ? std::get_if<Scale>(&before->op) : nullptr;
        if (scale && scale->length == static_cast<int>(config.original_context)) {
          list.back().steps.push_back(static_cast<size_t>(before - r.model().plan.steps.data()));
        }
      }
      if (config.scaling != RopeScaling::kNone && config.scaling != RopeScaling::kLongRope) {
        add("factor of the rope scaling", config.factor, 1.0 / 64, 64, true,
            [](Formula& f, double v) { f.rope.factor = v; });
      }
    } else if (const auto* attention = std::get_if<Attention>(&op)) {
      add("query scale", attention->scale, 1e-4, 1e2, true,
          number([](Formula& f) -> float& { return std::get<Attention>(f.op).scale; }));
      add("soft-cap of the scores", attention->softcap, 0.1, 1e3, true,
          number([](Formula& f) -> float& { return std::get<Attention>(f.op).softcap; }));
    } else if (const auto* glu = std::get_if<Glu>(&op)) {
      if (glu->activation != Activation::kClampedSwiglu) continue;
      add("limit of the activation", glu->limit, 0.1, 100, true,
          number([](Formula& f) -> float& { return std::get<Glu>(f.op).limit; }));
      add("alpha of the activation", glu->alpha, 0.1, 10, true,
          number([](Formula& f) -> float& { return std::get<Glu>(f.op).alpha; }));
    } else if (const auto* sum = std::get_if<Add>(&op)) {
      add("residual multiplier", sum->scale, -2, 8, false,
          number([](Formula& f) -> float& { return std::get<Add>(f.op).scale; }));
    } else if (const auto* scale = std::get_if<Scale>(&op)) {
      if (scale->beta != 0) {
        add("beta of the scale by position", scale->beta, 1e-3, 10, true,
            number([](Formula& f) -> float& { return std::get<Scale>(f.op).beta; }));
      }
      add("factor", scale->factor, 1e-3, 1e3, true,
          number([](Formula& f) -> float& { return std::get<Scale>(f.op).factor; }));
    } else if (const auto* soft = std::get_if<SoftCap>(&op)) {
      add("soft-cap", soft->cap, 0.1, 1e3, true,
          number([](Formula& f) -> float& { return std::get<SoftCap>(f.op).cap; }));
    } else if (std::holds_alternative<MatMul>(op)) {
      add("factor", 1, 1e-3, 1e3, true, [](Formula& f, double v) { f.factor = v; });
      if (r.model().plan.steps[s].logits_only)
        add("soft-cap", 0, 0.1, 1e3, true, [](Formula& f, double v) { f.cap = v; });
    }
  }
  return list;
}

Change at(const Dial& dial, double value) {
  Change change{{}, dial.subject, dial.planned, fitted(value) + " (fitted)"};
  for (const size_t s : dial.steps) {
    change.edits.emplace_back(s, [turn = dial.turn, value](Formula& f) { turn(f, value); });
  }
  return change;
}

}  // namespace doppler
