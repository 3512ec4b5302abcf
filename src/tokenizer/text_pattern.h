// What a tokenizer.json looks for in text: a plain string or a regular expression.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/regex.h"

namespace doppler {

class TextPattern {
 public:
  TextPattern() = default;
  // `content` must not be empty.
  static TextPattern literal(std::string content);
  static TextPattern regex(std::string_view pattern, const std::string& where);

  // Calls `match` for each match from left to right, none overlapping, as Hugging Face's iterator does: an empty match
  // right after another match is passed over.
  void each_match(std::string_view text, const std::function<void(Span)>& match) const;

  // Null for a regular expression.
  const std::string* literal() const { return regex_ ? nullptr : &literal_; }

 private:
  std::string literal_;
  std::optional<Regex> regex_;
};

}  // namespace doppler
