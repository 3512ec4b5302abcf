// Finds added tokens in running text: leftmost first, and of those that begin at one place the longest.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer_spec.h"

namespace doppler {

class AddedTokenFinder {
 public:
  // Adds a token; `pattern` is its content as it stands in the text that will be searched. Of two tokens with one
  // pattern the first counts.
  void add(std::string_view pattern, const AddedToken& token);

  struct Part {
    size_t begin = 0, end = 0;  // bytes of the text
    int32_t id = -1;            // an added token, or -1: text
  };

  // The parts of `text` from left to right. White space that a token takes along belongs to its part; where two tokens
  // claim it, parts can overlap.
  void split(std::string_view text, const std::function<void(Part)>& part) const;

 private:
  struct Node {
    uint32_t child = 0, sibling = 0;  // indices into nodes_; 0 is none
    int32_t token = -1;               // into tokens_
    char byte = 0;
  };
  struct Flags {
    int32_t id;
    bool single_word, lstrip, rstrip;
  };
  bool longest_at(std::string_view text, size_t at, size_t& end, int32_t& token) const;

  std::vector<Node> nodes_{1};
  std::array<uint32_t, 256> roots_{};  // the node of each first byte
  std::vector<Flags> tokens_;
};

}  // namespace doppler
