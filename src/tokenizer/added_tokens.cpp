#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace doppler {
namespace {

bool ends_with_word(std::string_view text) {
  uint32_t length = 0;
  return !text.empty() && is_word(read_last_utf8(text, length));
}

bool starts_with_word(std::string_view text) {
  uint32_t length = 0;
  return !text.empty() && is_word(read_valid_utf8(text, 0, length));
}

size_t without_trailing_space(std::string_view text) {
  uint32_t length = 0;
  while (!text.empty() && is_whitespace(read_last_utf8(text, length))) text.remove_suffix(length);
  return text.size();
}

size_t leading_space(std::string_view text) {
  size_t at = 0;
  uint32_t length = 0;
  while (at < text.size() && is_whitespace(read_valid_utf8(text, at, length))) at += length;
  return at;
}

}  // namespace

void AddedTokenFinder::add(std::string_view pattern, const AddedToken& token) {
  if (pattern.empty()) return;
  uint32_t node = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char byte = pattern[i];
    uint32_t found = i == 0 ? roots_[static_cast<unsigned char>(byte)] : nodes_[node].child;
    while (i > 0 && found != 0 && nodes_[found].byte != byte) found = nodes_[found].sibling;
    if (found == 0) {
      found = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({0, i == 0 ? 0 : nodes_[node].child, -1, byte});
      (i == 0 ? roots_[static_cast<unsigned char>(byte)] : nodes_[node].child) = found;
    }
    node = found;
  }
  if (nodes_[node].token >= 0) return;
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back({token.id, token.single_word, token.lstrip, token.rstrip});
}

bool AddedTokenFinder::longest_at(std::string_view text, size_t at, size_t& end, int32_t& token) const {
  bool found = false;
  uint32_t node = roots_[static_cast<unsigned char>(text[at])];
  while (node != 0) {
    ++at;
    if (nodes_[node].token >= 0) {
      found = true;
      end = at;
      token = nodes_[node].token;
    }
    if (at == text.size()) break;
    node = nodes_[node].child;
    while (node != 0 && nodes_[node].byte != text[at]) node = nodes_[node].sibling;
  }
  return found;
}

void AddedTokenFinder::split(std::string_view text, const std::function<void(Part)>& part) const {
  size_t done = 0;  // text before this belongs to a part already
  if (!tokens_.empty()) {
    for (size_t at = 0; at < text.size();) {
      size_t end = 0;
      int32_t index = -1;
      if (!longest_at(text, at, end, index)) {
        ++at;
        continue;
      }
      size_t begin = at;
      at = end;  // a match that is refused below is passed over all the same
      const Flags& token = tokens_[static_cast<size_t>(index)];
      if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
      if (token.lstrip) begin = std::max(without_trailing_space(text.substr(0, begin)), done);
      if (token.rstrip) end += leading_space(text.substr(end));
      if (done < begin) part({done, begin, -1});
      if (begin < end) part({begin, end, token.id});  // nothing is left of it where another token took its space
      done = end;
    }
  }
  if (done != text.size()) part({done, text.size(), -1});
}

}  // namespace doppler
