#include "grammar/expression.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"

namespace doppler {
namespace {

// Expressions of one grammar. Its automaton is about as large, at 12 bytes per state.
constexpr size_t kMostNodes = 400'000, kMostRules = 10'000;

template <class T>
void append_raw(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

Expressions::Expressions(std::string where) : where_(std::move(where)) {
  nodes_ = {{Kind::kNever, 0, 0, {}}, {Kind::kEmpty, 0, 0, {}}};
}

void Expressions::check_size() const {
  if (nodes_.size() <= kMostNodes && rules_.size() <= kMostRules) return;
  fail({.code = ErrorCode::kUsage,
        .what = "the grammar is too large",
        .where = where_,
        .expected = fmt::format("at most {} parts and {} rules", kMostNodes, kMostRules),
        .todo = "Use fewer or smaller alternatives and repetitions"});
}

Expression Expressions::add(Node node) {
  std::string key;
  key += static_cast<char>(node.kind);
  append_raw(key, node.a);
  append_raw(key, node.b);
  for (const Expression part : node.parts) append_raw(key, part);
  const auto [found, fresh] = known_.emplace(std::move(key), static_cast<Expression>(nodes_.size()));
  if (fresh) {
    nodes_.push_back(std::move(node));
    check_size();
  }
  return found->second;
}

Expression Expressions::byte(const ByteSet& set) {
  if (set == ByteSet{}) return kNever;
  std::string key = "set";
  append_raw(key, set);
  const auto [found, fresh] = known_.emplace(std::move(key), static_cast<Expression>(sets_.size()));
  if (fresh) sets_.push_back(set);
  return add({Kind::kByte, found->second, 0, {}});
}

Expression Expressions::text(std::string_view bytes) {
  std::vector<Expression> parts;
  for (const char c : bytes) {
    ByteSet set{};
    add_byte(set, static_cast<uint8_t>(c));
    parts.push_back(byte(set));
  }
  return sequence(parts);
}

Expression Expressions::character(std::vector<CodeRange> ranges) {
  // Cut at the borders between lengths of UTF-8 and at surrogates; then each piece is cut until the bytes behind its
  // first differing byte run over all of 80 … BF.
  static constexpr CodeRange kLengths[] = {
      {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}};
  ByteSet ascii{};
  std::vector<Expression> words;
  const auto byte_range = [&](uint8_t first, uint8_t last) {
    ByteSet set{};
    for (int b = first; b <= last; ++b) add_byte(set, static_cast<uint8_t>(b));
    return byte(set);
  };
  std::vector<CodeRange> todo;
  for (const CodeRange& range : ranges) {
    for (const CodeRange& length : kLengths) {
      const CodeRange piece = {std::max(range.first, length.first), std::min(range.last, length.last)};
      if (piece.first <= piece.last) todo.push_back(piece);
    }
  }
  while (!todo.empty()) {
    const CodeRange range = todo.back();
    todo.pop_back();
    if (range.last < 0x80) {
      for (char32_t c = range.first; c <= range.last; ++c) add_byte(ascii, static_cast<uint8_t>(c));
      continue;
    }
    bool cut = false;
    for (int bits = 6; bits <= 18 && !cut; bits += 6) {
      const char32_t low = (char32_t{1} << bits) - 1;
      if ((range.first & ~low) == (range.last & ~low)) continue;
      char32_t border = 0;
      if ((range.first & low) != 0) {
        border = range.first | low;
      } else if ((range.last & low) != low) {
        border = (range.last & ~low) - 1;
      } else {
        continue;
      }
      todo.push_back({range.first, border});
      todo.push_back({border + 1, range.last});
      cut = true;
    }
    if (cut) continue;
    std::string first, last;
    append_utf8(first, range.first);
    append_utf8(last, range.last);
    std::vector<Expression> word;
    for (size_t i = 0; i < first.size(); ++i) {
      word.push_back(byte_range(static_cast<uint8_t>(first[i]), static_cast<uint8_t>(last[i])));
    }
    words.push_back(sequence(word));
  }
  words.push_back(byte(ascii));
  return any_of(std::move(words));
}

Expression Expressions::sequence(const std::vector<Expression>& parts) {
  std::vector<Expression> flat;
  for (const Expression part : parts) {
    if (part == kNever) return kNever;
    if (part == kEmpty) continue;
    if (nodes_[part].kind == Kind::kSequence) {
      flat.insert(flat.end(), nodes_[part].parts.begin(), nodes_[part].parts.end());
    } else {
      flat.push_back(part);
    }
  }
  if (flat.empty()) return kEmpty;
  if (flat.size() == 1) return flat[0];
  return add({Kind::kSequence, 0, 0, std::move(flat)});
}

Expression Expressions::any_of(std::vector<Expression> parts) {
  std::vector<std::vector<Expression>> words;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Node& node = nodes_[parts[i]];
    if (node.kind == Kind::kNever) continue;
    if (node.kind == Kind::kAnyOf) {
      const std::vector<Expression> inner = node.parts;
      parts.insert(parts.end(), inner.begin(), inner.end());
    } else if (node.kind == Kind::kSequence) {
      words.push_back(node.parts);
    } else if (node.kind == Kind::kEmpty) {
      words.emplace_back();
    } else {
      words.push_back({parts[i]});
    }
  }
  return factor(words);
}

Expression Expressions::factor(std::vector<std::vector<Expression>>& words) {
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  std::vector<Expression> parts;
  ByteSet single{};  // of all alternatives that are one byte
  for (size_t i = 0; i < words.size();) {
    if (words[i].empty()) {
      parts.push_back(kEmpty);
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < words.size() && words[end][0] == words[i][0]) ++end;
    if (end == i + 1) {
      const Node& node = nodes_[words[i][0]];
      if (words[i].size() == 1 && node.kind == Kind::kByte) {
        for (size_t k = 0; k < single.size(); ++k) single[k] |= sets_[node.a][k];
      } else {
        parts.push_back(sequence(words[i]));
      }
    } else {
      size_t common = 1;  // sorted: what the first and the last share, all do
      const auto &low = words[i], &high = words[end - 1];
      while (common < low.size() && common < high.size() && low[common] == high[common]) ++common;
      std::vector<Expression> head(low.begin(), low.begin() + static_cast<ptrdiff_t>(common));
      std::vector<std::vector<Expression>> tails;
      for (size_t k = i; k < end; ++k)
        tails.emplace_back(words[k].begin() + static_cast<ptrdiff_t>(common), words[k].end());
      head.push_back(factor(tails));
      parts.push_back(sequence(head));
    }
    i = end;
  }
  if (single != ByteSet{}) parts.push_back(byte(single));
  if (parts.empty()) return kNever;
  if (parts.size() == 1) return parts[0];
  std::sort(parts.begin(), parts.end());
  return add({Kind::kAnyOf, 0, 0, std::move(parts)});
}

Expression Expressions::repeat(Expression part, uint32_t least, uint32_t most) {
  if (least > most) return kNever;
  if (most == 0 || part == kEmpty) return kEmpty;
  if (part == kNever) return least == 0 ? kEmpty : kNever;
  if (least == 1 && most == 1) return part;
  if (least == 0 && most == 1) return optional(part);
  return add({Kind::kRepeat, least, most, {part}});
}

Rule Expressions::declare(std::string name) {
  rules_.push_back({std::move(name)});
  check_size();
  return static_cast<Rule>(rules_.size() - 1);
}

Expression Expressions::shared(Expression part, const std::string& name) {
  const Kind kind = nodes_[part].kind;
  if (kind == Kind::kRule || (kind != Kind::kRepeat && nodes_[part].parts.size() < 2)) return part;
  const auto found = shared_.find(part);
  if (found != shared_.end()) return found->second;
  const Rule rule = declare(name);
  define(rule, part);
  return shared_[part] = call(rule);
}

void Expressions::fixpoint(std::vector<bool>& rules, bool byte_is) const {
  // From what has it to what has it because of that: every part is followed once.
  std::vector<std::vector<Expression>> users(nodes_.size()), calls(rules_.size());
  std::vector<std::vector<Rule>> heads(nodes_.size());  // the rules whose body it is
  std::vector<size_t> lacks(nodes_.size(), 1);          // parts that must get it yet
  std::vector<bool> value(nodes_.size());
  std::vector<Expression> todo;
  const auto found = [&](Expression e) {
    if (!value[e]) todo.push_back(e);
    value[e] = true;
  };
  for (Expression e = 0; e < nodes_.size(); ++e) {
    const Node& node = nodes_[e];
    if (node.kind == Kind::kSequence) lacks[e] = node.parts.size();
    for (const Expression part : node.parts) users[part].push_back(e);
    if (node.kind == Kind::kRule) calls[node.a].push_back(e);
    if (node.kind == Kind::kEmpty || (node.kind == Kind::kByte && byte_is) || lacks[e] == 0 ||
        (node.kind == Kind::kRepeat && node.a == 0)) {
      found(e);
    }
  }
  for (Rule r = 0; r < rules_.size(); ++r) heads[rules_[r].body].push_back(r);
  while (!todo.empty()) {
    const Expression e = todo.back();
    todo.pop_back();
    for (const Expression user : users[e]) {
      if (lacks[user] > 0 && --lacks[user] == 0) found(user);
    }
    for (const Rule r : heads[e]) {
      rules[r] = true;
      for (const Expression call : calls[r]) found(call);
    }
  }
}

Expression Expressions::replace_impossible(Expression e, const std::vector<bool>& possible) {
  const auto found = replaced_.find(e);
  if (found != replaced_.end()) return found->second;
  const Node node = nodes_[e];
  std::vector<Expression> parts;
  for (const Expression part : node.parts) parts.push_back(replace_impossible(part, possible));
  Expression result = e;
  if (node.kind == Kind::kRule && !possible[node.a]) result = kNever;
  if (node.kind == Kind::kSequence) result = sequence(parts);
  if (node.kind == Kind::kAnyOf) result = any_of(std::move(parts));
  if (node.kind == Kind::kRepeat) result = repeat(parts[0], node.a, node.b);
  return replaced_[e] = result;
}

void Expressions::remove_impossible() {
  std::vector<bool> possible(rules_.size());
  fixpoint(possible, /*byte_is=*/true);
  if (std::find(possible.begin(), possible.end(), false) == possible.end()) return;
  for (Named& rule : rules_) rule.body = replace_impossible(rule.body, possible);
}

void Expressions::find_empty() {
  empty_rules_.assign(rules_.size(), false);
  fixpoint(empty_rules_, /*byte_is=*/false);
}

bool Expressions::may_be_empty(Expression e) const {
  const Node& node = nodes_[e];
  const auto is = [&](Expression part) { return may_be_empty(part); };
  switch (node.kind) {
    case Kind::kNever:
    case Kind::kByte: return false;
    case Kind::kEmpty: return true;
    case Kind::kSequence: return std::all_of(node.parts.begin(), node.parts.end(), is);
    case Kind::kAnyOf: return std::any_of(node.parts.begin(), node.parts.end(), is);
    case Kind::kRepeat: return node.a == 0 || is(node.parts[0]);
    case Kind::kRule: return node.a < empty_rules_.size() && empty_rules_[node.a];
  }
  return false;
}

Expression Expressions::without_empty(Expression e) {
  if (!may_be_empty(e)) return e;
  const auto found = filled_.find(e);
  if (found != filled_.end()) return found->second;
  const Node node = nodes_[e];
  Expression result = kNever;
  if (node.kind == Kind::kAnyOf) {
    std::vector<Expression> parts;
    for (const Expression part : node.parts) parts.push_back(without_empty(part));
    result = any_of(std::move(parts));
  } else if (node.kind == Kind::kSequence) {
    // All parts may be empty: the first that is not, and whatever follows it.
    std::vector<Expression> words;
    for (size_t i = 0; i < node.parts.size(); ++i) {
      std::vector<Expression> word(node.parts.begin() + static_cast<ptrdiff_t>(i), node.parts.end());
      word[0] = without_empty(word[0]);
      words.push_back(sequence(word));
    }
    result = any_of(std::move(words));
  } else if (node.kind == Kind::kRepeat) {
    result = repeat(without_empty(node.parts[0]), 1, node.b);
  } else if (node.kind == Kind::kRule) {
    const Rule rule = declare(rules_[node.a].name);
    empty_rules_.resize(rules_.size(), false);
    filled_[e] = result = call(rule);  // before its body, which may lead here again
    define(rule, without_empty(rules_[node.a].body));
  }
  return filled_[e] = result;
}

}  // namespace doppler
