#include "grammar/token_trie.h"

#include <algorithm>

namespace doppler {
namespace {

constexpr char kSpecial =
    '\xFF';  // in front of special tokens; a token of text with this byte is none that could match

}  // namespace

std::shared_ptr<const TokenTrie> TokenTrie::make(const Tokenizer& tokenizer) {
  const Tokenizer::NamedTokens& named = tokenizer.named();
  std::vector<std::pair<std::string, int32_t>> words;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.has(id)) continue;
    if (id == named.bos || id == named.eos || id == named.pad || id == named.unk) continue;
    const bool special = tokenizer.is_special(id);
    std::string bytes = special ? kSpecial + std::string(tokenizer.piece(id)) : tokenizer.token_bytes(id);
    if (special || !bytes.starts_with(kSpecial)) words.emplace_back(std::move(bytes), id);
  }
  return std::make_shared<TokenTrie>(std::move(words), /*by_token=*/true);
}

std::string TokenTrie::bytes_of_mark(std::string_view mark) const {
  const std::string special = kSpecial + std::string(mark);
  uint32_t at = 0;
  for (const char byte : special) {
    uint32_t child = at + 1;
    while (child < nodes_[at].end && nodes_[child].byte != static_cast<uint8_t>(byte)) child = nodes_[child].end;
    if (child >= nodes_[at].end) return std::string(mark);
    at = child;
  }
  const auto [first, last] = tokens_at(at);
  return first == last ? std::string(mark) : special;
}

TokenTrie::TokenTrie(std::vector<std::pair<std::string, int32_t>> words, bool by_token) {
  std::sort(words.begin(), words.end());
  nodes_.emplace_back();
  parents_.push_back(0);
  std::vector<uint32_t> path = {0};  // nodes from the root to the last word's
  std::string_view last;
  const auto close = [&](size_t depth) {
    for (; path.size() > depth + 1; path.pop_back()) nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
  };
  for (const auto& [word, id] : words) {
    constexpr size_t kLongest = 0xFFFF;
    if (word.empty() || word.size() > kLongest || id < 0) continue;
    const size_t common =
        static_cast<size_t>(std::mismatch(word.begin(), word.end(), last.begin(), last.end()).first - word.begin());
    close(common);
    for (size_t depth = common; depth < word.size(); ++depth) {
      parents_.push_back(path.back());
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({0, static_cast<uint32_t>(tokens_.size()), static_cast<uint16_t>(depth + 1),
                        static_cast<uint8_t>(word[depth])});
    }
    tokens_.push_back(id);
    if (by_token) {
      if (static_cast<size_t>(id) >= node_of_.size()) node_of_.resize(static_cast<size_t>(id) + 1);
      node_of_[static_cast<size_t>(id)] = path.back();
    }
    longest_ = std::max(longest_, word.size());
    vocab_size_ = std::max(vocab_size_, id + 1);
    last = word;
  }
  close(0);
  nodes_[0].end = static_cast<uint32_t>(nodes_.size());
}

std::string TokenTrie::bytes_of(int32_t token) const {
  std::string bytes;
  if (token < 0 || token >= vocab_size_) return bytes;
  for (uint32_t at = node_of_[static_cast<size_t>(token)]; at != 0; at = parents_[at]) {
    bytes += static_cast<char>(nodes_[at].byte);
  }
  std::reverse(bytes.begin(), bytes.end());
  return bytes;
}

}  // namespace doppler
