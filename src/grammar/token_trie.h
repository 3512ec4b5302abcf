// The tokens of a vocabulary by their bytes: what begins alike lies together, so that a grammar looks at a beginning
// once for all tokens that share it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace doppler {

class TokenTrie {
 public:
  // In the order of a walk, a node before its children: the next node is its first child if it has one, and `end` is
  // where the walk goes on without what lies below it. Node 0 is the root, depth 0.
  struct Node {
    uint32_t end = 0;
    uint32_t tokens = 0;  // where its tokens begin in tokens(); they end where the next node's begin
    uint16_t depth = 0;   // bytes up to and with this one
    uint8_t byte = 0;
  };

  // Every token that is text: special tokens and those that tokenizer_config.json names are none. Special tokens are
  // there by bytes that no text has (see bytes_of_mark).
  static std::shared_ptr<const TokenTrie> make(const Tokenizer& tokenizer);
  // Of any words; an empty one is left out. `by_token`: bytes_of() will be asked.
  explicit TokenTrie(std::vector<std::pair<std::string, int32_t>> words, bool by_token = false);

  const std::vector<Node>& nodes() const { return nodes_; }
  // The tokens that end at a node.
  std::pair<const int32_t*, const int32_t*> tokens_at(size_t node) const {
    return {tokens_.data() + nodes_[node].tokens,
            tokens_.data() + (node + 1 < nodes_.size() ? nodes_[node + 1].tokens : tokens_.size())};
  }
  size_t longest() const { return longest_; }         // bytes of a token at most
  int32_t vocab_size() const { return vocab_size_; }  // one more than the largest id
  // The bytes of a token; empty for one that is not here.
  std::string bytes_of(int32_t token) const;
  // What a grammar writes for a mark: where it is a special token, a byte that no UTF-8 has and the mark, so that no
  // text can be taken for the token nor the token for text; else the mark itself.
  std::string bytes_of_mark(std::string_view mark) const;

 private:
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
  std::vector<uint32_t> node_of_;  // by token; 0: none; empty unless by_token
  std::vector<uint32_t> parents_;  // by node
  size_t longest_ = 0;
  int32_t vocab_size_ = 0;
};

}  // namespace doppler
