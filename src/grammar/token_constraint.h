// What an answer is held to, token by token. The engine knows these two and nothing of grammars.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace doppler {

class TokenMask {
 public:
  explicit TokenMask(int32_t vocab_size) : words_((static_cast<size_t>(vocab_size) + 63) / 64) {}
  bool has(int32_t id) const {
    const auto i = static_cast<size_t>(id);
    return i / 64 < words_.size() && (words_[i / 64] >> (i % 64) & 1);
  }
  void add(int32_t id) { words_[static_cast<size_t>(id) / 64] |= uint64_t{1} << (static_cast<size_t>(id) % 64); }
  std::span<uint64_t> words() { return words_; }
  std::span<const uint64_t> words() const { return words_; }

 private:
  std::vector<uint64_t> words_;  // a bit for each token
};

// One text as it grows. Belongs to one thread.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // The tokens that may come next, tokens that end a text not among them; none where finding them takes more work than
  // one text may cost. Good until the next accept().
  virtual const TokenMask& allowed() = 0;
  // The text may end here; and must, since nothing can follow.
  virtual bool may_end() const = 0;
  virtual bool must_end() const = 0;
  // Takes the next token. False, and nothing has changed, if it is not allowed.
  virtual bool accept(int32_t token) = 0;
};

// Immutable, and shared by threads.
class TokenGrammar {
 public:
  virtual ~TokenGrammar() = default;
  virtual std::unique_ptr<TokenConstraint> begin() const = 0;
};

}  // namespace doppler
