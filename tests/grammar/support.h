// Texts out of a grammar, token by token, by a seeded choice.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "grammar/grammar.h"
#include "support/scratch.h"
#include "support/tokenizers.h"

namespace doppler::testing {

// Tries are kept: the large ones take a while.
inline std::shared_ptr<const TokenTrie> trie_of(const std::string& name) {
  static std::map<std::string, std::shared_ptr<const TokenTrie>> known;
  auto& trie = known[name];
  if (!trie) trie = TokenTrie::make(Tokenizer::load(tokenizer_folder(name)));
  return trie;
}

// A vocabulary of the 256 bytes, and these words behind them.
inline std::shared_ptr<const TokenTrie> byte_trie(const std::vector<std::string>& words = {}) {
  std::vector<std::pair<std::string, int32_t>> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(std::string(1, static_cast<char>(b)), b);
  for (const std::string& word : words) tokens.emplace_back(word, static_cast<int32_t>(tokens.size()));
  return std::make_shared<TokenTrie>(std::move(tokens), true);
}

// Whether the whole text matches, its bytes given one by one.
inline bool matches(const TokenGrammar& grammar, std::string_view text) {
  const auto constraint = grammar.begin();
  for (const char byte : text) {
    const auto token = static_cast<int32_t>(static_cast<unsigned char>(byte));
    const bool allowed = constraint->allowed().has(token);
    if (constraint->accept(token) != allowed) ADD_FAILURE() << "mask and accept() differ in " << text;
    if (!allowed) return false;
  }
  return constraint->may_end();
}

inline std::vector<int32_t> allowed_tokens(const TokenMask& mask) {
  std::vector<int32_t> list;
  for (size_t w = 0; w < mask.words().size(); ++w) {
    for (uint64_t bits = mask.words()[w]; bits != 0; bits &= bits - 1) {
      list.push_back(static_cast<int32_t>(w * 64 + static_cast<size_t>(__builtin_ctzll(bits))));
    }
  }
  return list;
}

// A text of random tokens. The longer it gets the likelier are tokens of digits, brackets, quotes and commas, so that
// most texts end. Nothing if it did not within `most` tokens.
inline std::optional<std::string> random_text(const TokenGrammar& grammar, const TokenTrie& trie, std::mt19937& random,
                                              int most) {
  const auto constraint = grammar.begin();
  std::string text;
  for (int i = 0; i < most; ++i) {
    if (constraint->must_end()) return text;
    std::vector<int32_t> tokens = allowed_tokens(constraint->allowed());
    if (constraint->may_end() && (tokens.empty() || random() % 4 == 0)) return text;
    if (tokens.empty()) {
      ADD_FAILURE() << "no token is allowed behind " << text;
      return std::nullopt;
    }
    int32_t token = tokens[random() % tokens.size()];
    if (static_cast<int>(random() % 30) < i) {
      std::vector<int32_t> closing;
      for (const int32_t t : tokens) {
        if (trie.bytes_of(t).find_first_not_of("\"]}0123456789") == std::string::npos) closing.push_back(t);
      }
      if (!closing.empty()) token = closing[random() % closing.size()];
    }
    text += trie.bytes_of(token);
    if (!constraint->accept(token)) {
      ADD_FAILURE() << "a token of the mask is refused in " << text;
      return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace doppler::testing
