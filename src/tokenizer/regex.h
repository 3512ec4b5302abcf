// Regular expressions as tokenizer.json writes them: Oniguruma's syntax over Unicode text. Behind this interface sits
// PCRE2 (regex_pcre2.cpp); a browser build can put its own RegExp here.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/text_effort.h"

namespace doppler {

struct Span {
  size_t begin = 0, end = 0;  // bytes
};

class Regex {
 public:
  // Fails on a pattern that is malformed or says something whose meaning we cannot promise to be Oniguruma's.
  static Regex compile(std::string_view pattern, const std::string& where);

  const std::string& pattern() const;

  struct Compiled;

 private:
  std::shared_ptr<const Compiled> compiled_;
  friend class RegexMatcher;
};

// Looks for one expression in one text. The text must be valid UTF-8 and outlive the matcher; so must the Regex and the
// effort.
class RegexMatcher {
 public:
  RegexMatcher(const Regex& regex, std::string_view text, TextEffort& effort);
  ~RegexMatcher();
  RegexMatcher(const RegexMatcher&) = delete;
  RegexMatcher& operator=(const RegexMatcher&) = delete;

  // The first match that begins at `from` or later. Fails when the effort is spent or no longer wanted.
  std::optional<Span> find(size_t from);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// An expression in Oniguruma's (Ruby's) syntax, rewritten for PCRE2 with UTF, UCP, MULTILINE and newline LF. What the
// two would read differently is spelled out (\s, \w, \d, \p{…} with the characters of newer Unicode versions, \v, \h);
// what cannot be is an error that names the construct.
std::string pcre_from_oniguruma(std::string_view pattern, const std::string& where);

// What a tokenizer.json looks for in text: a plain string or a regular expression.
class TextPattern {
 public:
  TextPattern() = default;
  // `content` must not be empty.
  static TextPattern literal(std::string content);
  static TextPattern regex(std::string_view pattern, const std::string& where);

  // Calls `match` for each match from left to right, none overlapping, as Hugging Face's iterator does: an empty match
  // right after another match is passed over.
  void each_match(std::string_view text, TextEffort& effort, const std::function<void(Span)>& match) const;
  void each_match(std::string_view text, const std::function<void(Span)>& match) const {
    TextEffort effort(text.size());
    each_match(text, effort, match);
  }

  // Null for a regular expression.
  const std::string* literal() const { return regex_ ? nullptr : &literal_; }

 private:
  std::string literal_;
  std::optional<Regex> regex_;
};

}  // namespace doppler
