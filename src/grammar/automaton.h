// A grammar as a pushdown automaton over bytes: states with edges for bytes, for alternatives, and for calls of rules,
// which remember on a stack where to go on. Repetitions with bounds are calls that count on the stack. Immutable once
// made.
#pragma once

#include <cstdint>
#include <vector>

#include "grammar/expression.h"

namespace doppler {

class Automaton {
 public:
  static constexpr uint32_t kEnd = 0;  // the state at the end of every rule: the stack says where to go on

  struct State {
    enum class Kind : uint8_t { kEnd, kByte, kSplit, kCall, kRepeat } kind = Kind::kEnd;
    // kByte: the set, the next state. kSplit: the range of targets(). kCall: the rule; kRepeat: the index of the
    // repetition; both: the state to return to.
    uint32_t a = 0, b = 0;
  };
  struct Repeat {
    Rule body = 0;  // never matches the empty text
    uint32_t least = 0, most = 0;
  };

  // Fails, with the names of the rules, where a rule can begin with itself, and where no text can match.
  Automaton(Expressions& expressions, Rule root);

  const State& state(uint32_t index) const { return states_[index]; }
  uint32_t target(uint32_t index) const { return targets_[index]; }
  const Repeat& repeat(uint32_t index) const { return repeats_[index]; }
  bool takes(const State& state, uint8_t byte) const { return has_byte(sets_[state.a], byte); }
  uint32_t start(Rule rule) const { return starts_[rule]; }
  Rule root() const { return root_; }
  Rule rule_of(uint32_t state) const { return rule_of_[state]; }
  // The bytes that can follow a rule's text, in all places that call it.
  const ByteSet& follow(Rule rule) const { return follow_[rule]; }
  size_t size() const { return states_.size(); }
  const ByteSet& set(const State& state) const { return sets_[state.a]; }

 private:
  void refuse_left_recursion(Expressions& expressions) const;
  uint32_t add(State::Kind kind, uint32_t a, uint32_t b);
  uint32_t split(std::vector<uint32_t> targets);
  uint32_t build(Expressions& expressions, Expression e, uint32_t next);
  uint32_t build_repeat(Expressions& expressions, Expression part, uint32_t least, uint32_t most, uint32_t next);
  uint32_t need(Rule rule);  // marks a rule to be built
  void find_follow();

  Rule root_;
  std::vector<State> states_;
  std::vector<uint32_t> targets_;
  std::vector<Repeat> repeats_;
  std::vector<ByteSet> sets_;
  std::vector<uint32_t> starts_;  // by rule
  std::vector<Rule> rule_of_;     // by state
  std::vector<ByteSet> follow_;   // by rule
  // Only while it is made.
  Rule building_ = 0;
  std::vector<Rule> todo_;
  std::unordered_map<Expression, Rule> bodies_;
  std::unordered_map<Expression, uint32_t> costs_;
  uint32_t cost(const Expressions& expressions, Expression e);
};

}  // namespace doppler
