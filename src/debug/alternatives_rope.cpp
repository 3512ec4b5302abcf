// The ways to turn by other angles.
#include <fmt/format.h>

#include <set>

#include "debug/change_list.h"

namespace doppler {
namespace {

const char* name_of_scaling(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::kNone: return "none";
    case RopeScaling::kLinear: return "linear";
    case RopeScaling::kLlama3: return "llama3";
    case RopeScaling::kYarn: return "yarn";
    case RopeScaling::kLongRope: return "longrope";
    case RopeScaling::kProportional: return "proportional";
  }
  return "";
}

std::string describe_scaling(const RopeConfig& rope) {
  const std::string name = name_of_scaling(rope.scaling);
  const bool plain = rope.scaling == RopeScaling::kNone || rope.scaling == RopeScaling::kProportional;
  if (plain || rope.scaling == RopeScaling::kLongRope) return name;
  const std::string factor = fmt::format("{} {}", name, plain_number(rope.factor));
  if (rope.scaling == RopeScaling::kLinear) return factor;
  const bool rounded = rope.scaling != RopeScaling::kYarn || rope.truncate;
  return fmt::format("{} (of {}{})", factor, plain_number(rope.original_context), rounded ? "" : ", not rounded");
}

std::string describe_rope(const RopeConfig& rope) {
  if (rope.rotated == 0) return "that turns nothing";
  const std::string share = rope.rotated == 1 ? "" : fmt::format(", share {:g}", rope.rotated);
  const std::string scaling = rope.scaling == RopeScaling::kNone ? "" : ", " + describe_scaling(rope);
  return fmt::format("of base {}{}{}", plain_number(rope.theta), share, scaling);
}

// Everything of a rope but what has changes of its own.
RopeConfig scaled_like(const RopeConfig& rope, RopeConfig other) {
  other.theta = rope.theta;
  other.rotated = rope.rotated;
  other.query_beta = rope.query_beta;
  return other;
}

void scalings(ChangeList& list, const RopeConfig& rope) {
  const ModelConfig& config = list.model().config;
  const auto scaling = [&](const RopeConfig& other) {
    if (scaled_like(rope, other) == rope || describe_scaling(other) == describe_scaling(rope)) return;
    list.add("rope scaling", describe_scaling(rope), describe_scaling(other),
             [other](Formula& f) { f.rope = scaled_like(f.rope, other); });
  };
  scaling({});
  for (const RopeConfig& other : config.ropes) scaling(other);
  const double original = rope.original_context > 0 ? rope.original_context : 8192;
  for (const double factor : {rope.factor, 2.0, 4.0, 8.0, 16.0, 32.0}) {
    if (factor == 1) continue;
    scaling({.scaling = RopeScaling::kLinear, .factor = factor});
    scaling({.scaling = RopeScaling::kLinear, .factor = 1 / factor});
    scaling({.scaling = RopeScaling::kLlama3, .factor = factor, .original_context = original});
    scaling({.scaling = RopeScaling::kYarn, .factor = factor, .original_context = original});
    scaling({.scaling = RopeScaling::kYarn, .factor = factor, .truncate = false, .original_context = original});
  }
}

// Numbers of the scaling that a rope has.
void scaling_numbers(ChangeList& list, const Rope& op, const RopeConfig& rope) {
  const ModelConfig& config = list.model().config;
  const int context = list.model().context;
  const auto with = [&](const std::string& subject, const std::string& planned, const std::string& instead,
                        auto change) {
    RopeConfig other = rope;
    change(other);
    if (other != rope) list.add(subject, planned, instead, [change](Formula& f) { change(f.rope); });
  };
  if (rope.scaling == RopeScaling::kLongRope) {
    const bool stretched = context > rope.original_context;
    const int other = static_cast<int>(rope.original_context) + (stretched ? 0 : 1);
    list.add("factors of longrope", stretched ? "the long ones" : "the short ones",
             stretched ? "the short ones" : "the long ones", [other](Formula& f) { f.context = other; });
  }
  for (const double then : {8192.0, 4096.0, 32768.0, 2048.0, static_cast<double>(config.max_context)}) {
    if (rope.original_context <= 0) break;
    with("original context of the rope scaling", plain_number(rope.original_context), plain_number(then),
         [then](RopeConfig& r) { r.original_context = then; });
  }
  if (rope.scaling == RopeScaling::kYarn || rope.scaling == RopeScaling::kLongRope) {
    const double magnitude = make_rope_table(rope, op.head_dim, context).magnitude;
    const auto factor = [&](const std::string& name, double value) {
      with("attention factor of the rope", fmt::format("{:.5g}", magnitude), name,
           [value](RopeConfig& r) { r.attention_factor = value; });
    };
    RopeConfig usual = rope;
    usual.attention_factor = 0;
    const double then = make_rope_table(usual, op.head_dim, context).magnitude;
    if (then != magnitude) factor(fmt::format("{:.5g}, the usual one", then), then);
    if (magnitude != 1) factor("1", 1);
    if (magnitude != 1) factor("its square", magnitude * magnitude);
  }
  if (rope.scaling == RopeScaling::kYarn) {
    with("correction range of yarn", rope.truncate ? "rounded" : "not rounded",
         rope.truncate ? "not rounded" : "rounded", [](RopeConfig& r) { r.truncate = !r.truncate; });
    with("beta_fast and beta_slow", fmt::format("{:g} and {:g}", rope.beta_fast, rope.beta_slow), "32 and 1",
         [](RopeConfig& r) { r.beta_fast = 32, r.beta_slow = 1; });
  }
  if (rope.scaling == RopeScaling::kLlama3) {
    for (const auto& [low, high] : {std::pair(1.0, 4.0), std::pair(rope.high_freq_factor, rope.low_freq_factor)}) {
      with("frequency factors of llama3", fmt::format("{:g} and {:g}", rope.low_freq_factor, rope.high_freq_factor),
           fmt::format("{:g} and {:g}", low, high),
           [l = low, h = high](RopeConfig& r) { r.low_freq_factor = l, r.high_freq_factor = h; });
    }
  }
}

}  // namespace

void rope_choices(ChangeList& list, const Rope& op, int first_bad) {
  const ModelConfig& config = list.model().config;
  const RopeConfig& rope = config.ropes[static_cast<size_t>(op.rope)];
  list.add("rotation", "applied", "left out", [](Formula& f) { f.left_out = true; });
  list.add("pairs of dims", "in halves", "side by side", [](Formula& f) { f.neighbours = true; });
  std::vector<double> bases;
  for (const RopeConfig& other : config.ropes) bases.push_back(other.theta);
  bases.insert(bases.end(), {1e4, 1e6, 5e5, 1e5, 1.5e5, 1e7, 5e6, 2e6, 8e6, 1e3, 1e8});
  std::set<double> seen{rope.theta};
  for (const double theta : bases) {
    if (!seen.insert(theta).second) continue;
    list.add("rope base", plain_number(rope.theta), plain_number(theta), [theta](Formula& f) { f.rope.theta = theta; });
  }
  for (size_t i = 0; i < config.ropes.size(); ++i) {
    const RopeConfig& other = config.ropes[i];
    const bool base_only = scaled_like(other, rope) == other && other.rotated == rope.rotated;
    const bool scaling_only = scaled_like(rope, other) == other;
    if (base_only || scaling_only) continue;  // tried above and below
    list.add("rope", describe_rope(rope), describe_rope(other), [other](Formula& f) { f.rope = other; });
  }
  scalings(list, rope);
  scaling_numbers(list, op, rope);
  for (const double share : {1.0, 0.75, 0.5, 0.4, 0.25}) {
    const bool same = rotary_dims(rope, op.head_dim) == static_cast<int>(op.head_dim * share);
    if (same || rope.scaling == RopeScaling::kLongRope) continue;
    list.add("turned share of a head", plain_number(rope.rotated), plain_number(share),
             [share](Formula& f) { f.rope.rotated = share; });
  }
  if (op.dims < op.head_dim && op.dims > 0) {
    list.add("frequencies", "spread over the turned dims", "spread over the whole head",
             [](Formula& f) { f.over_head = true; });
  }
  if (rope.query_beta == 0 && list.step().name.find(".q_") != std::string::npos) {
    for (const double length : {rope.original_context, 8192.0, 4096.0, 16384.0}) {
      if (length <= 0) continue;
      list.add("scale by position", "none", fmt::format("1 + 0.1·ln(1 + ⌊p / {}⌋)", plain_number(length)),
               [length](Formula& f) { f.beta = 0.1, f.length = static_cast<int>(length); });
    }
  }
  list.add("direction of rotation", "forwards", "backwards", [](Formula& f) { f.backwards = true; });
  for (const int shift : {1, -1}) {
    const std::string there = shift > 0 ? "p + 1" : "p - 1";
    if (first_bad <= 1) list.add("position", "p", there, [shift](Formula& f) { f.shift = shift; });
    if (first_bad < 1) continue;
    list.add("position", "p", fmt::format("{} from {} on", there, first_bad), [shift, first_bad](Formula& f) {
      f.shift = shift;
      f.shift_from = first_bad;
    });
  }
}

}  // namespace doppler
