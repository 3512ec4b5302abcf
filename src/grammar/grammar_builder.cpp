#include "grammar/grammar_builder.h"

#include <vector>

#include "grammar/compiled_grammar.h"
#include "grammar/gbnf.h"
#include "grammar/json_text.h"

namespace doppler {
namespace {

// Any character but these of ASCII.
Expression any_but(Expressions& e, const std::string& bytes) {
  std::vector<CodeRange> ranges;
  char32_t first = 0;
  for (char32_t c = 0; c < 0x80; ++c) {
    if (bytes.find(static_cast<char>(c)) == std::string::npos) continue;
    if (c > first) ranges.push_back({first, c - 1});
    first = c + 1;
  }
  ranges.push_back({first, 0x10FFFF});
  return e.character(std::move(ranges));
}

}  // namespace

Expression GrammarBuilder::until(std::string_view mark) {
  const std::string bytes = trie_->bytes_of_mark(mark);
  if (bytes != mark) {  // a token that no text can be taken for
    return e_.sequence({e_.repeat(any_but(e_, ""), 0, Expressions::kForever), e_.text(bytes)});
  }
  // A rule for each beginning of the mark that the text ends with; a character leads to the longest that it leaves.
  // They call each other at their ends, where a call costs no frame.
  std::vector<Rule> rules;
  for (size_t i = 0; i < bytes.size(); ++i) rules.push_back(e_.declare("before " + bytes));
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string seen;  // characters that leave a beginning
    std::vector<Expression> parts;
    for (const char c : bytes) {
      if (seen.find(c) != std::string::npos) continue;
      const std::string tail = bytes.substr(0, i) + c;
      size_t left = i + 1;
      while (left > 0 && !std::string_view(tail).ends_with(std::string_view(bytes).substr(0, left))) --left;
      if (left == 0) continue;
      seen += c;
      const Expression taken = e_.text(std::string_view(&c, 1));
      parts.push_back(left == bytes.size() ? taken : e_.sequence({taken, e_.call(rules[left])}));
    }
    parts.push_back(e_.sequence({any_but(e_, seen), e_.call(rules[0])}));
    e_.define(rules[i], e_.any_of(std::move(parts)));
  }
  return e_.call(rules[0]);
}

Expression GrammarBuilder::json_schema(std::string_view text, const std::string& where) {
  return read_json_schema(text, where, e_);
}

Expression GrammarBuilder::json_object() { return JsonText(e_).object(); }

Expression GrammarBuilder::gbnf(std::string_view text) { return e_.call(read_gbnf(text, e_)); }

std::shared_ptr<const TokenGrammar> GrammarBuilder::finish(Expression root) {
  const Rule rule = e_.declare("root");
  e_.define(rule, root);
  return std::make_shared<CompiledGrammar>(e_, rule, std::move(trie_));
}

}  // namespace doppler
