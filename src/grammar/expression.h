// Grammars as data: expressions over bytes, and named rules that refer to each other. Equal expressions are one, so
// what is used often is there once. Whoever reads a language of grammars (GBNF, JSON schemas) builds these.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/unicode.h"

namespace doppler {

using ByteSet = std::array<uint64_t, 4>;  // a bit for each of the 256 bytes
inline bool has_byte(const ByteSet& set, uint8_t byte) { return set[byte >> 6] >> (byte & 63) & 1; }
inline void add_byte(ByteSet& set, uint8_t byte) { set[byte >> 6] |= uint64_t{1} << (byte & 63); }

using Expression = uint32_t;  // an index
using Rule = uint32_t;

class Expressions {
 public:
  static constexpr uint32_t kForever = 0xFFFFFFFF;  // repeated without end
  static constexpr Expression kNever = 0;           // matches nothing at all
  static constexpr Expression kEmpty = 1;           // matches the empty text

  enum class Kind : uint8_t { kNever, kEmpty, kByte, kSequence, kAnyOf, kRepeat, kRule };
  struct Node {
    Kind kind = Kind::kNever;
    uint32_t a = 0, b = 0;               // kByte: set; kRepeat: least and most; kRule: rule
    std::vector<Expression> parts = {};  // kSequence, kAnyOf; kRepeat: one
  };

  // `where` names the grammar in errors.
  explicit Expressions(std::string where);

  Expression text(std::string_view bytes);  // exactly these bytes
  Expression byte(const ByteSet& set);
  // One character out of these ranges of code points, as UTF-8; surrogates are none.
  Expression character(std::vector<CodeRange> ranges);
  Expression sequence(const std::vector<Expression>& parts);
  // What alternatives begin with in common is taken out of them, so that lists of words become tries.
  Expression any_of(std::vector<Expression> parts);
  Expression optional(Expression part) { return any_of({part, kEmpty}); }
  Expression repeat(Expression part, uint32_t least, uint32_t most);

  Rule declare(std::string name);
  void define(Rule rule, Expression body) { rules_[rule].body = body; }
  Expression call(Rule rule) { return add({Kind::kRule, rule, 0, {}}); }
  // For what is used at more than one place: a rule of its own unless it is short.
  Expression shared(Expression part, const std::string& name);

  // Rules that match no text become kNever wherever they are used. Call once, when all rules are defined.
  void remove_impossible();
  // Which rules match the empty text, and whether an expression does, given those.
  void find_empty();
  bool may_be_empty(Expression e) const;
  // The texts of `e` but for the empty one. After find_empty().
  Expression without_empty(Expression e);

  const Node& node(Expression e) const { return nodes_[e]; }
  const ByteSet& set(uint32_t index) const { return sets_[index]; }
  const std::vector<ByteSet>& sets() const { return sets_; }
  size_t rule_count() const { return rules_.size(); }
  Expression body(Rule rule) const { return rules_[rule].body; }
  const std::string& name(Rule rule) const { return rules_[rule].name; }
  const std::string& where() const { return where_; }
  // Fails where a grammar has become too large.
  void check_size() const;

 private:
  struct Named {
    std::string name;
    Expression body = kNever;
  };
  Expression add(Node node);
  Expression factor(std::vector<std::vector<Expression>>& words);
  Expression replace_impossible(Expression e, const std::vector<bool>& possible);
  // The rules that have a property which the empty text has: where a byte has it too it is "matches some text", else
  // "matches the empty text". In time that is linear in the grammar.
  void fixpoint(std::vector<bool>& rules, bool byte_is) const;

  std::string where_;
  std::vector<Node> nodes_;
  std::vector<ByteSet> sets_;
  std::vector<Named> rules_;
  std::unordered_map<std::string, Expression> known_;  // by what it consists of
  std::unordered_map<Expression, Expression> shared_, replaced_, filled_;
  std::vector<bool> empty_rules_;
};

}  // namespace doppler
