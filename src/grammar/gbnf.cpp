#include "grammar/gbnf.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/utf8.h"
#include "grammar/grammar.h"
#include "grammar/grammar_builder.h"

namespace doppler {
namespace {

constexpr size_t kMostGbnfBytes = 1 << 20;
constexpr int kDeepest = 200;
constexpr uint32_t kMostRepeats = 1'000'000'000;

class GbnfReader {
 public:
  GbnfReader(std::string_view text, Expressions& expressions) : text_(text), expressions_(expressions) {}

  Rule read() {
    skip_space(true);
    while (!ended()) read_rule();
    for (const auto& [name, rule] : rules_) {
      if (rule.defined) continue;
      at_ = rule.first_use;
      wrong(fmt::format("the rule '{}' is used and not defined", name));
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) wrong("there is no rule named root");
    return root->second.rule;
  }

 private:
  struct Known {
    Rule rule = 0;
    bool defined = false;
    size_t first_use = 0;
  };

  bool ended() const { return at_ >= text_.size(); }
  char peek() const { return ended() ? '\0' : text_[at_]; }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  [[noreturn]] void wrong(const std::string& what, const std::string& expected = "") const {
    const std::string_view before = text_.substr(0, std::min(at_, text_.size()));
    const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
    const size_t begin = before.rfind('\n') + 1;  // npos + 1 is 0
    fail({.code = ErrorCode::kUsage,
          .what = what,
          .where = fmt::format("{}: line {}, column {}", expressions_.where(), line, before.size() - begin + 1),
          .expected = expected});
  }

  void skip_space(bool lines) {
    for (; !ended(); ++at_) {
      const char c = peek();
      if (c == '#') {
        while (!ended() && peek() != '\n' && peek() != '\r') ++at_;
        if (ended()) return;
        --at_;  // the line's end is looked at next
        if (!lines) {
          ++at_;
          return;
        }
      } else if (c != ' ' && c != '\t' && !(lines && (c == '\n' || c == '\r'))) {
        return;
      }
    }
  }

  static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  }
  std::string name() {
    const size_t begin = at_;
    while (!ended() && is_name(peek())) ++at_;
    if (at_ == begin) wrong("a rule's name is missing here", "letters, digits, - and _");
    return std::string(text_.substr(begin, at_ - begin));
  }
  Known& known(const std::string& name, size_t use) {
    const auto [found, fresh] = rules_.try_emplace(name);
    if (fresh) found->second = {expressions_.declare(name), false, use};
    return found->second;
  }

  void read_rule() {
    const size_t begin = at_;
    const std::string rule = name();
    skip_space(false);
    if (!take("::=")) wrong("a rule needs ::= after its name");
    skip_space(true);
    const Expression body = alternatives(0);
    Known& entry = known(rule, begin);
    if (entry.defined) {
      at_ = begin;
      wrong(fmt::format("the rule '{}' is defined twice", rule));
    }
    entry.defined = true;
    expressions_.define(entry.rule, body);
    if (!ended() && peek() != '\n' && peek() != '\r') wrong("this does not belong to a rule", "a new line");
    skip_space(true);
  }

  Expression alternatives(int depth) {
    std::vector<Expression> parts = {sequence(depth)};
    while (true) {
      const size_t before = at_;
      skip_space(true);  // an alternative may begin on the next line
      if (!take("|")) {
        if (depth == 0) at_ = before;
        break;
      }
      skip_space(true);
      parts.push_back(sequence(depth));
    }
    return expressions_.any_of(std::move(parts));
  }

  Expression sequence(int depth) {
    std::vector<Expression> parts;
    while (!ended()) {
      const char c = peek();
      Expression part = Expressions::kEmpty;
      if (c == '"') {
        part = literal();
      } else if (c == '[') {
        part = char_class();
      } else if (c == '.') {
        ++at_;
        part = expressions_.character({{0, 0x10FFFF}});
      } else if (c == '(') {
        if (depth >= kDeepest) wrong("groups are nested too deep", fmt::format("at most {} levels", kDeepest));
        ++at_;
        skip_space(true);
        part = alternatives(depth + 1);
        skip_space(true);
        if (!take(")")) wrong("a group is not closed", ")");
      } else if (is_name(c)) {
        const size_t use = at_;
        part = expressions_.call(known(name(), use).rule);
      } else if (c == '<' || c == '!') {
        wrong("tokens in a grammar are not supported", "text in quotes");
      } else {
        break;
      }
      parts.push_back(repeated(part));
      skip_space(depth > 0);
    }
    return expressions_.sequence(parts);
  }

  Expression repeated(Expression part) {
    while (true) {
      if (take("*")) {
        part = expressions_.repeat(part, 0, Expressions::kForever);
      } else if (take("+")) {
        part = expressions_.repeat(part, 1, Expressions::kForever);
      } else if (take("?")) {
        part = expressions_.optional(part);
      } else if (take("{")) {
        skip_space(true);
        uint32_t least = 0, most = Expressions::kForever;
        const bool has_least = peek() >= '0' && peek() <= '9';
        if (has_least) least = number();
        skip_space(true);
        if (take(",")) {
          skip_space(true);
          if (peek() >= '0' && peek() <= '9') most = number();
          skip_space(true);
        } else {
          most = least;
          if (!has_least) wrong("a repetition needs a number");
        }
        if (!take("}")) wrong("a repetition is not closed", "}");
        if (least > most) wrong("a repetition's least number is above its most");
        part = expressions_.repeat(part, least, most);
      } else {
        return part;
      }
    }
  }

  uint32_t number() {
    uint64_t value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = value * 10 + static_cast<uint64_t>(text_[at_++] - '0');
      if (value > kMostRepeats) wrong("a repetition's number is too large", fmt::format("at most {}", kMostRepeats));
    }
    return static_cast<uint32_t>(value);
  }

  // One character of a literal or a class, escapes undone.
  char32_t character() {
    if (ended() || peek() == '\n' || peek() == '\r') wrong("a literal or class is not closed on its line");
    if (!take("\\")) {
      uint32_t length = 0;
      const char32_t code = read_valid_utf8(text_, at_, length);
      at_ += length;
      return code;
    }
    const char c = peek();
    ++at_;
    switch (c) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'x': return hex(2);
      case 'u': return hex(4);
      case 'U': return hex(8);
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^': return static_cast<char32_t>(c);
      default: --at_; wrong("there is no such escape", R"(\n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH or \UHHHHHHHH)");
    }
  }
  char32_t hex(int digits) {
    uint64_t code = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char c = peek();
      const char low = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9') {
        code = code * 16 + static_cast<uint64_t>(c - '0');
      } else if (low >= 'a' && low <= 'f') {
        code = code * 16 + static_cast<uint64_t>(low - 'a' + 10);
      } else {
        wrong("an escape is cut short", fmt::format("{} hexadecimal digits", digits));
      }
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) wrong("an escape names no character");
    return static_cast<char32_t>(code);
  }

  Expression literal() {
    ++at_;
    std::string bytes;
    while (!take("\"")) append_utf8(bytes, character());
    return expressions_.text(bytes);
  }

  Expression char_class() {
    ++at_;
    const bool negated = take("^");
    std::vector<CodeRange> ranges;
    while (!take("]")) {
      const char32_t first = character();
      char32_t last = first;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        last = character();
      }
      if (first > last) wrong("a range of characters runs backwards");
      ranges.push_back({first, last});
    }
    if (!negated) return expressions_.character(std::move(ranges));
    std::sort(ranges.begin(), ranges.end(), [](const CodeRange& a, const CodeRange& b) { return a.first < b.first; });
    std::vector<CodeRange> others;
    char32_t next = 0;
    for (const CodeRange& range : ranges) {
      if (range.first > next) others.push_back({next, range.first - 1});
      next = std::max<char32_t>(next, range.last + 1);
    }
    if (next <= 0x10FFFF) others.push_back({next, 0x10FFFF});
    return expressions_.character(std::move(others));
  }

  std::string_view text_;
  Expressions& expressions_;
  std::map<std::string, Known> rules_;
  size_t at_ = 0;
};

}  // namespace

Rule read_gbnf(std::string_view text, Expressions& expressions) {
  if (text.size() > kMostGbnfBytes) {
    fail({.code = ErrorCode::kUsage,
          .what = "the grammar is too long",
          .where = expressions.where(),
          .expected = fmt::format("at most {} bytes", kMostGbnfBytes),
          .got = std::to_string(text.size())});
  }
  if (const size_t fault = find_invalid_utf8(text); fault != text.size()) {
    fail({.code = ErrorCode::kUsage,
          .what = "the grammar is not UTF-8",
          .where = fmt::format("{}: byte {}", expressions.where(), fault)});
  }
  return GbnfReader(text, expressions).read();
}

std::shared_ptr<const TokenGrammar> grammar_from_gbnf(std::string_view text, const std::string& where,
                                                      std::shared_ptr<const TokenTrie> trie) {
  GrammarBuilder builder(where, std::move(trie));
  return builder.finish(builder.gbnf(text));
}

}  // namespace doppler
