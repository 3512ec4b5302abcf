// Speculation: tokens that may come next, guessed from the text so far, so that one pass over the weights can check
// several. A guess is taken only where it is what the model chooses anyway, from the same logits and the same draw, so
// the tokens are those that come without it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/executor.h"

namespace doppler {

enum class Speculation : uint8_t {
  kOff,
  kNgram,  // always, where the text offers a guess
  kAuto,   // as long as it pays; by the session's draft model where it has one
};

inline constexpr const char* kSpeculationNames[] = {"off", "ngram", "auto"};
Speculation speculation_named(std::string_view name);  // fails for another name

class Guesser {
 public:
  virtual ~Guesser() = default;
  // Begins another text.
  virtual void clear() = 0;
  virtual void add(int32_t token) = 0;
  // At most `most` tokens; good until the next call.
  virtual std::span<const int32_t> guess(size_t most) = 0;
  virtual size_t size() const = 0;  // tokens of the text
};

// Prompt look-up: where the last few tokens stood before, what followed them is the guess.
class NgramGuesser : public Guesser {
 public:
  void clear() override { *this = {}; }
  void add(int32_t token) override;
  std::span<const int32_t> guess(size_t most) override;
  size_t size() const override { return text_.size(); }

 private:
  static constexpr size_t kLongest = 4, kShortest = 2;  // tokens that must agree
  uint64_t key(size_t end, size_t length) const;

  std::vector<int32_t> text_;
  std::unordered_map<uint64_t, size_t> after_;  // by the last tokens: the place of what followed them last
};

// A small model of the same vocabulary: what it finds likeliest is the guess.
class DraftGuesser : public Guesser {
 public:
  // Tokens that the draft's context must have beyond the text's: guesses run in a fork, which takes pages of its own.
  static constexpr int kRoom = 64;

  DraftGuesser(std::unique_ptr<Executor> draft, int context);

  void clear() override { text_.clear(); }
  void add(int32_t token) override { text_.push_back(token); }
  std::span<const int32_t> guess(size_t most) override;
  size_t size() const override { return text_.size(); }

 private:
  std::unique_ptr<Executor> draft_;
  size_t context_;
  Sequence sequence_;  // of tokens of the text, never of a guess
  std::vector<int32_t> text_, guesses_;
};

// How many tokens to guess, by what guessing has gained so far.
class SpeculationPace {
 public:
  static constexpr int kMostGuesses = 7;  // with the token before them one GEMV of eight

  explicit SpeculationPace(Speculation mode) : mode_(mode) {}
  // 0: not now.
  int guesses() const;
  // A pass of one token and `guessed` more, of which `accepted` were right, took `ms`.
  void update(int guessed, int accepted, double ms);

 private:
  Speculation mode_;
  int length_ = 3;
  double single_ms_ = 0;             // of a pass without guesses, lately; 0: not known
  double gain_ = 1.5;                // tokens in the time of one, lately
  int pause_ = 0, next_pause_ = 16;  // passes without guesses
};

}  // namespace doppler
