// An automaton and a vocabulary, and which tokens the automaton allows where.
//
// Most of a mask depends only on where a place stands in its rule: a token that stays within the rule is allowed
// whatever called the rule. These parts are found by one walk over the trie and kept. What is left are tokens that
// leave the rule before they end; they are kept by the bytes behind the exit (`"`, `",`, …), of which there are few,
// and looked at with the real stack every time.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/matcher.h"
#include "grammar/token_constraint.h"
#include "grammar/token_trie.h"

namespace doppler {

class CompiledGrammar : public TokenGrammar, public std::enable_shared_from_this<CompiledGrammar> {
 public:
  CompiledGrammar(Expressions& expressions, Rule root, std::shared_ptr<const TokenTrie> trie);

  std::unique_ptr<TokenConstraint> begin() const override;

  const Automaton& automaton() const { return automaton_; }
  const TokenTrie& trie() const { return *trie_; }

  // The tokens that places with one frame allow.
  struct Local {
    std::vector<uint64_t> dense;       // a bit for each, or
    std::vector<int32_t> sparse;       // their ids: tokens that end before the frame is left, or just there
    std::unique_ptr<TokenTrie> exits;  // the others, by what must match behind the frame; null: none
  };
  // `states` of places that share the frame, sorted.
  std::shared_ptr<const Local> local(const std::vector<uint32_t>& states, const Matcher::Frame& frame) const;

 private:
  std::shared_ptr<const Local> compute(const std::vector<uint32_t>& states, const Matcher::Frame& bottom) const;
  void warm() const;

  Automaton automaton_;
  std::shared_ptr<const TokenTrie> trie_;
  // Filled as places are reached. The lock is held to look and to put in, never while something is computed.
  mutable std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
  mutable std::unordered_map<std::string, std::shared_ptr<const Local>> known_;
  mutable size_t known_bytes_ = 0;
};

}  // namespace doppler
