#include "tokenizer/tokenizer_spec.h"

#include <algorithm>
#include <tuple>

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

std::vector<Merge> merges_from_scores(const Vocabulary& vocabulary, const std::vector<float>& scores) {
  struct Candidate {
    Merge merge;
    float score;
    uint32_t left_length, right_length;  // characters
  };
  std::vector<Candidate> all;
  for (int32_t id = 0; id < vocabulary.id_end() && static_cast<size_t>(id) < scores.size(); ++id) {
    const std::string_view token = vocabulary.token(id);
    const size_t begin = all.size();
    uint32_t length = 0, characters = 0;
    for (size_t at = 0; at < token.size(); at += length) {
      read_valid_utf8(token, at, length);
      if (at > 0) {
        const int32_t left = vocabulary.find(token.substr(0, at)), right = vocabulary.find(token.substr(at));
        if (left >= 0 && right >= 0) all.push_back({{left, right, id}, scores[static_cast<size_t>(id)], characters, 0});
      }
      ++characters;
    }
    for (size_t i = begin; i < all.size(); ++i) all[i].right_length = characters - all[i].left_length;
    std::sort(all.begin() + static_cast<std::ptrdiff_t>(begin), all.end(), [](const Candidate& a, const Candidate& b) {
      return std::tie(a.merge.left, a.merge.right) < std::tie(b.merge.left, b.merge.right);
    });
  }
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.score, a.left_length, a.right_length) > std::tie(b.score, b.left_length, b.right_length);
  });
  std::vector<Merge> merges;
  merges.reserve(all.size());
  for (const Candidate& candidate : all) merges.push_back(candidate.merge);
  return merges;
}

}  // namespace doppler
