#include "tokenizer/text_pattern.h"

#include "base/utf8.h"

namespace doppler {

TextPattern TextPattern::literal(std::string content) {
  TextPattern pattern;
  pattern.literal_ = std::move(content);
  return pattern;
}

TextPattern TextPattern::regex(std::string_view expression, const std::string& where) {
  TextPattern pattern;
  pattern.regex_ = Regex::compile(expression, where);
  return pattern;
}

void TextPattern::each_match(std::string_view text, const std::function<void(Span)>& match) const {
  if (text.empty()) return;
  if (!regex_) {
    for (size_t at = text.find(literal_); at != std::string_view::npos; at = text.find(literal_, at)) {
      match({at, at + literal_.size()});
      at += literal_.size();
    }
    return;
  }
  RegexMatcher matcher(*regex_, text);
  size_t from = 0;
  std::optional<size_t> last_end;
  while (from <= text.size()) {
    const std::optional<Span> found = matcher.find(from);
    if (!found) return;
    if (found->begin == found->end && last_end == found->end) {
      uint32_t length = 1;
      if (from < text.size()) read_valid_utf8(text, from, length);
      from += length;
      continue;
    }
    from = found->end;
    last_end = found->end;
    match(*found);
  }
}

}  // namespace doppler
