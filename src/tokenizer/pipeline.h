// What happens to text before byte pair encoding: added tokens are found in it, the rest is normalized and cut into
// pieces (pre-tokenized).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tokenizer/tokenizer_spec.h"

namespace doppler {

// How long a text may be at any point of its way to ids: positions in it are 32 bits wide.
inline constexpr size_t kMostEncodedBytes = size_t{1} << 30;

inline void check_length(size_t bytes) {
  if (bytes > kMostEncodedBytes) {
    fail({.code = ErrorCode::kUsage,
          .what = "this text is too long to encode at once",
          .expected = "at most 1 GiB on its way to tokens",
          .got = std::to_string(bytes) + " bytes",
          .todo = "Encode it in parts"});
  }
}

// Finds added tokens in running text: leftmost first, and of those that begin at one place the longest. Time is linear
// in the text, whatever the tokens: an automaton of Aho and Corasick's reads text and tokens backwards, so that what it
// knows at a place is the longest token that begins there.
class AddedTokenFinder {
 public:
  // Adds a token; `pattern` is its content as it stands in the text that will be searched. Of two tokens with one
  // pattern the first counts.
  void add(std::string_view pattern, const AddedToken& token);
  void build();  // after the last of them, once

  struct Part {
    size_t begin = 0, end = 0;  // bytes of the text
    int32_t id = -1;            // an added token, or -1: text
  };

  // The parts of `text` from left to right. White space that a token takes along belongs to its part; where two tokens
  // claim it, parts can overlap.
  void split(std::string_view text, const std::function<void(Part)>& part) const;

 private:
  struct Node {
    uint32_t children = 0;  // the first of them in nodes_; they end where the next node's begin
    uint32_t shorter = 0;   // the node of the longest other string that ends as this one's does
    int32_t token = -1;     // the longest that ends as this node's string does, in tokens_
    unsigned char byte = 0;
  };
  struct Token {
    std::string backwards;  // until build()
    size_t length;
    int32_t id;
    bool single_word, lstrip, rstrip;
  };
  uint32_t step(uint32_t node, char byte) const;

  std::vector<Node> nodes_;            // by length of their strings, and one more to end the last one's children
  std::array<uint32_t, 256> roots_{};  // the node of each last byte
  std::vector<Token> tokens_;
  size_t longest_ = 0;
};

// Runs the steps over valid UTF-8.
std::string run_normalizer(const std::vector<NormalizerStep>& steps, std::string_view text, TextEffort& effort);

// What is encoded piece by piece: pieces that follow each other in one string; none is empty.
struct Pieces {
  std::string text;
  std::vector<size_t> ends;  // of each piece, rising; the last is text.size()
};

// `text` is valid UTF-8. `at_start`: it is the beginning of what the user gave.
Pieces run_pre_tokenizer(const std::vector<PreTokenizerStep>& steps, std::string text, bool at_start,
                         TextEffort& effort);

}  // namespace doppler
