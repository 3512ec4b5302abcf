#include "grammar/automaton.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace doppler {
namespace {

constexpr uint32_t kUnbuilt = 0xFFFFFFFF;
constexpr size_t kMostStates = 1'000'000;
// A repetition whose copies are no more states than this is written out, which keeps short ones off the stack.
constexpr uint64_t kInline = 64;

// The rules whose text `e` can begin with.
void first_rules(const Expressions& expressions, Expression e, std::vector<Rule>& out) {
  const Expressions::Node& node = expressions.node(e);
  switch (node.kind) {
    case Expressions::Kind::kRule: out.push_back(node.a); break;
    case Expressions::Kind::kSequence:
      for (const Expression part : node.parts) {
        first_rules(expressions, part, out);
        if (!expressions.may_be_empty(part)) break;
      }
      break;
    case Expressions::Kind::kAnyOf:
    case Expressions::Kind::kRepeat:
      for (const Expression part : node.parts) first_rules(expressions, part, out);
      break;
    default: break;
  }
}

}  // namespace

Automaton::Automaton(Expressions& expressions, Rule root) : root_(root) {
  expressions.remove_impossible();
  if (expressions.body(root) == Expressions::kNever) {
    fail({.code = ErrorCode::kUsage,
          .what = "no text can match this grammar",
          .where = expressions.where(),
          .todo = "Look for rules that never end, and for demands that contradict each other"});
  }
  expressions.find_empty();
  refuse_left_recursion(expressions);
  add(State::Kind::kEnd, 0, 0);
  need(root);
  while (!todo_.empty()) {
    building_ = todo_.back();
    todo_.pop_back();
    starts_[building_] = build(expressions, expressions.body(building_), kEnd);
  }
  sets_ = expressions.sets();
  find_follow();
  bodies_ = {};
  costs_ = {};
}

// A rule that begins with itself would call itself for ever before a byte is read.
void Automaton::refuse_left_recursion(Expressions& expressions) const {
  enum : uint8_t { kNew, kOpen, kDone };
  struct Open {
    Rule rule;
    std::vector<Rule> first;
    size_t at = 0;
  };
  std::vector<uint8_t> seen(expressions.rule_count(), kNew);
  for (Rule from = 0; from < expressions.rule_count(); ++from) {
    std::vector<Open> path;
    const auto enter = [&](Rule rule) {
      seen[rule] = kOpen;
      path.push_back({rule, {}});
      first_rules(expressions, expressions.body(rule), path.back().first);
    };
    if (seen[from] == kNew) enter(from);
    while (!path.empty()) {
      Open& top = path.back();
      if (top.at == top.first.size()) {
        seen[top.rule] = kDone;
        path.pop_back();
        continue;
      }
      const Rule next = top.first[top.at++];
      if (seen[next] == kNew) {
        enter(next);
        continue;
      }
      if (seen[next] == kDone) continue;
      std::string names;
      auto it = std::find_if(path.begin(), path.end(), [&](const Open& open) { return open.rule == next; });
      for (; it != path.end(); ++it) names += expressions.name(it->rule) + " → ";
      fail({.code = ErrorCode::kUsage,
            .what = fmt::format("the rule '{}' can begin with itself", expressions.name(next)),
            .where = expressions.where(),
            .got = names + expressions.name(next),
            .todo = "Turn the left recursion into a repetition, or put the recursion at the end of the rule"});
    }
  }
}

uint32_t Automaton::add(State::Kind kind, uint32_t a, uint32_t b) {
  if (states_.size() >= kMostStates) {
    fail({.code = ErrorCode::kUsage,
          .what = "the grammar is too large",
          .expected = fmt::format("at most {} states", kMostStates),
          .todo = "Use fewer alternatives and properties"});
  }
  states_.push_back({kind, a, b});
  rule_of_.push_back(building_);
  return static_cast<uint32_t>(states_.size() - 1);
}

uint32_t Automaton::split(std::vector<uint32_t> targets) {
  std::sort(targets.begin(), targets.end());
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  if (targets.size() == 1) return targets[0];
  const auto begin = static_cast<uint32_t>(targets_.size());
  targets_.insert(targets_.end(), targets.begin(), targets.end());
  return add(State::Kind::kSplit, begin, static_cast<uint32_t>(targets_.size()));
}

uint32_t Automaton::need(Rule rule) {
  if (rule >= starts_.size()) starts_.resize(rule + 1, kUnbuilt);
  if (starts_[rule] == kUnbuilt) {
    starts_[rule] = kEnd;
    todo_.push_back(rule);
  }
  return rule;
}

uint32_t Automaton::cost(const Expressions& expressions, Expression e) {
  const auto found = costs_.find(e);
  if (found != costs_.end()) return found->second;
  const Expressions::Node& node = expressions.node(e);
  uint64_t sum = 1;
  for (const Expression part : node.parts) sum += cost(expressions, part);
  if (node.kind == Expressions::Kind::kRepeat && node.b != Expressions::kForever) {
    sum = std::min<uint64_t>(sum * node.b, kInline);
  }
  return costs_[e] = static_cast<uint32_t>(std::min<uint64_t>(sum, 1u << 30));
}

uint32_t Automaton::build(Expressions& expressions, Expression e, uint32_t next) {
  const Expressions::Node node = expressions.node(e);  // a copy: what follows may add expressions
  switch (node.kind) {
    case Expressions::Kind::kNever: return split({});
    case Expressions::Kind::kEmpty: return next;
    case Expressions::Kind::kByte: return add(State::Kind::kByte, node.a, next);
    case Expressions::Kind::kSequence:
      for (size_t i = node.parts.size(); i-- > 0;) next = build(expressions, node.parts[i], next);
      return next;
    case Expressions::Kind::kAnyOf: {
      std::vector<uint32_t> targets;
      for (const Expression part : node.parts) targets.push_back(build(expressions, part, next));
      return split(std::move(targets));
    }
    case Expressions::Kind::kRepeat: return build_repeat(expressions, node.parts[0], node.a, node.b, next);
    case Expressions::Kind::kRule: return add(State::Kind::kCall, need(node.a), next);
  }
  return next;
}

uint32_t Automaton::build_repeat(Expressions& expressions, Expression part, uint32_t least, uint32_t most,
                                 uint32_t next) {
  if (expressions.may_be_empty(part)) least = 0;
  const Expression body = expressions.without_empty(part);
  const uint64_t each = cost(expressions, body);
  if (most == Expressions::kForever) {
    // The copies that must be there, then a loop. Its split is made first, since the body leads back to it.
    const auto begin = static_cast<uint32_t>(targets_.size());
    targets_.resize(begin + 2);
    const uint32_t loop = add(State::Kind::kSplit, begin, begin + 2);
    targets_[begin] = build(expressions, body, loop);
    targets_[begin + 1] = next;
    return least == 0 ? loop : build_repeat(expressions, body, least, least, loop);
  }
  if (each * most <= kInline) {
    uint32_t rest = next;
    for (uint32_t i = least; i < most; ++i) rest = split({build(expressions, body, rest), next});
    for (uint32_t i = 0; i < least; ++i) rest = build(expressions, body, rest);
    return rest;
  }
  const auto known = bodies_.find(body);
  Rule rule = 0;
  if (known != bodies_.end()) {
    rule = known->second;
  } else if (expressions.node(body).kind == Expressions::Kind::kRule) {
    rule = expressions.node(body).a;
  } else {
    rule = expressions.declare("a repetition");
    expressions.define(rule, body);
  }
  bodies_[body] = rule;
  need(rule);
  repeats_.push_back({rule, least, most});
  return add(State::Kind::kRepeat, static_cast<uint32_t>(repeats_.size() - 1), next);
}

void Automaton::find_follow() {
  starts_.resize(std::max<size_t>(starts_.size(), root_ + 1), kUnbuilt);
  // What a state can begin with, and whether it can reach the end of its rule without a byte. Edges without a byte make
  // no circle: loops have bodies that are not empty, and no rule begins with itself.
  std::vector<ByteSet> first(states_.size());
  std::vector<int8_t> ends(states_.size(), -1);
  std::vector<uint32_t> todo, edges;
  for (uint32_t from = 0; from < states_.size(); ++from) {
    todo.push_back(from);
    while (!todo.empty()) {
      const uint32_t at = todo.back();
      const State& state = states_[at];
      if (ends[at] >= 0) {
        todo.pop_back();
        continue;
      }
      edges.clear();
      bool called_ends = true;  // a rule that can be empty lets what follows it begin
      if (state.kind == State::Kind::kSplit) edges.assign(targets_.begin() + state.a, targets_.begin() + state.b);
      if (state.kind == State::Kind::kCall || state.kind == State::Kind::kRepeat) {
        const bool repeat = state.kind == State::Kind::kRepeat;
        const uint32_t called = starts_[repeat ? repeats_[state.a].body : state.a];
        edges = {called};
        called_ends = repeat ? repeats_[state.a].least == 0 : ends[called] == 1;
        if (ends[called] >= 0 && called_ends) edges.push_back(state.b);
      }
      const size_t before = todo.size();
      for (const uint32_t edge : edges) {
        if (ends[edge] < 0) todo.push_back(edge);
      }
      if (todo.size() > before) continue;
      todo.pop_back();
      ends[at] = state.kind == State::Kind::kEnd;
      if (state.kind == State::Kind::kByte) first[at] = sets_[state.a];
      for (const uint32_t edge : edges) {
        for (size_t k = 0; k < 4; ++k) first[at][k] |= first[edge][k];
      }
      if (state.kind == State::Kind::kSplit) {
        for (const uint32_t edge : edges) ends[at] |= ends[edge];
      } else if (!edges.empty()) {
        ends[at] = called_ends && ends[state.b] == 1;
      }
    }
  }
  follow_.assign(starts_.size(), {});
  std::vector<std::vector<Rule>> passes_on(starts_.size());  // a rule's followers follow these, too
  std::vector<Rule> changed;
  for (uint32_t at = 0; at < states_.size(); ++at) {
    const State& state = states_[at];
    if (state.kind != State::Kind::kCall && state.kind != State::Kind::kRepeat) continue;
    const Rule called = state.kind == State::Kind::kCall ? state.a : repeats_[state.a].body;
    for (size_t k = 0; k < 4; ++k) follow_[called][k] |= first[state.b][k];
    if (ends[state.b] == 1) passes_on[rule_of_[at]].push_back(called);
    changed.push_back(called);
  }
  while (!changed.empty()) {
    const Rule rule = changed.back();
    changed.pop_back();
    for (const Rule called : passes_on[rule]) {
      const ByteSet before = follow_[called];
      for (size_t k = 0; k < 4; ++k) follow_[called][k] |= follow_[rule][k];
      if (follow_[called] != before) changed.push_back(called);
    }
  }
}

}  // namespace doppler
