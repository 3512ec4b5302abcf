// An automaton and a vocabulary, and which tokens the automaton allows where.
//
// A text's mask is what each of its places allows, together. Most of a place's mask depends only on where it stands in
// its rule: a token that stays within the rule is allowed whatever called the rule. These parts are found by one walk
// over the trie and kept, by place: there are as many as places, while sets of places are without number. What is left
// are tokens that
// leave the rule before they end; they are kept by the bytes behind the exit (`"`, `",`, …), of which there are few,
// and looked at with the real stack every time.
#pragma once

#include <array>
#include <atomic>
#include <list>
#include <map>
#include <memory>
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

  // Where a place stands: its state, and of a repetition what is repeated and how often it must and may still end, as
  // far as a token can tell.
  using Key = std::array<uint32_t, 4>;
  Key key(uint32_t state, const Matcher::Frame& frame) const;
  // The tokens that a place allows.
  struct Local {
    std::vector<uint64_t> dense;       // a bit for each, or
    std::vector<int32_t> sparse;       // their ids: tokens that end before the frame is left, or just there
    std::unique_ptr<TokenTrie> exits;  // the others, by what must match behind the frame; null: none
  };
  // Takes what it costs from `credit`, and fails where that does not suffice.
  std::shared_ptr<const Local> local(const Key& key, uint64_t& credit) const;
  static void spend(uint64_t& credit, uint64_t work);

  size_t known_bytes() const { return known_bytes_; }
  static constexpr size_t kMostKnownBytes = size_t{64} << 20;

 private:
  std::shared_ptr<const Local> compute(const Key& key, uint64_t& credit) const;
  void warm() const;

  Automaton automaton_;
  std::shared_ptr<const TokenTrie> trie_;
  // Filled as places are reached. The lock is held to look and to put in, never while something is computed.
  mutable std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
  struct Known {
    Key key;
    std::shared_ptr<const Local> local;
    size_t bytes = 0;
  };
  mutable std::list<Known> recent_;  // the last one used in front
  mutable std::map<Key, std::list<Known>::iterator> known_;
  mutable size_t known_bytes_ = 0;
};

}  // namespace doppler
