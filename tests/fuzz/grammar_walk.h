// A short text out of a grammar that a fuzzer made up: what the mask allows is accepted, and nothing else.
#pragma once

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "grammar/grammar.h"

namespace doppler::fuzz {

// The bytes, and words that cross the borders of JSON's parts.
inline std::shared_ptr<const TokenTrie> trie() {
  static const auto made = [] {
    std::vector<std::pair<std::string, int32_t>> words;
    for (int b = 0; b < 256; ++b) words.emplace_back(std::string(1, static_cast<char>(b)), b);
    for (const char* word : {"\":", "\",\"", "\"}", "],[", "{\"", "true", "aa", "ab", "\xC3\xA9", "}}", "\n  ", "00"}) {
      words.emplace_back(word, static_cast<int32_t>(words.size()));
    }
    return std::make_shared<TokenTrie>(std::move(words), true);
  }();
  return made;
}

inline void walk(const TokenGrammar& grammar, size_t seed) {
  const auto constraint = grammar.begin();
  for (int i = 0; i < 40 && !constraint->must_end(); ++i) {
    std::vector<int32_t> tokens;
    for (int32_t token = 0; token < trie()->vocab_size(); ++token) {
      if (constraint->allowed().has(token)) tokens.push_back(token);
    }
    if (tokens.empty() && !constraint->may_end()) std::abort();  // a dead end with every byte at hand
    if (tokens.empty()) return;
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    if (!constraint->accept(tokens[(seed >> 33) % tokens.size()])) std::abort();
  }
}

}  // namespace doppler::fuzz
