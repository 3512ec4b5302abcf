// A conversation with a model: tokens go in, tokens come out, and its sequence is kept between calls.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/decode_loop.h"
#include "engine/generation.h"
#include "model/executor.h"
#include "tokenizer/tokenizer.h"

namespace doppler {

// Called with each piece of text as soon as it is certain (whole characters; may be empty). Return false to stop.
using OnPiece = std::function<bool(std::string_view piece)>;

class Session {
 public:
  // `tokenizer` may be null: then only ids come back. It must outlive the session.
  Session(std::unique_ptr<Executor> executor, const Tokenizer* tokenizer, int context);

  // Runs `prompt` (the whole text so far) and goes on from it. What the sequence holds of it, or else what the cache
  // still has of it, is not run again.
  Generation generate(std::span<const int32_t> prompt, const GenerateOptions& options, const OnPiece& on_piece = {});

  // From now on Speculation::kAuto guesses with this model, which has the same vocabulary and a context of
  // DraftGuesser::kRoom tokens more.
  void set_draft(std::unique_ptr<Executor> draft);

  // Gives the sequence back: a backend may hold only one.
  void invalidate();

  Executor& executor() { return *executor_; }
  int context() const { return context_; }

 private:
  // Makes the sequence hold exactly `prompt` and returns its last logits, or none if on_piece asked to stop.
  std::span<const float> prefill(std::span<const int32_t> prompt, const OnPiece& on_piece, Timing& timing);
  // The token after the last of the answer: from the backend's own choices where it makes them, else chosen here.
  int32_t next(Answer& answer, const GenerateOptions& options, DecodePace& pace);
  std::span<const float> run_guesses(Answer& answer, const GenerateOptions& options);
  void drop_ahead();  // takes back the tokens that were run and nobody wanted

  std::unique_ptr<Executor> executor_;
  const Tokenizer* tokenizer_;
  int context_;
  std::optional<Sequence> sequence_;
  std::deque<int32_t> ahead_;  // tokens the backend chose that nobody has looked at yet
  // Tokens that were run on a guess, the logits behind each and behind the one before them, and how many were right.
  std::vector<int32_t> guesses_;
  std::span<const float> guess_logits_;
  size_t accepted_ = 0;
  double pass_ms_ = 0;              // that guessing and running them took
  std::unique_ptr<Guesser> draft_;  // none: guesses come from the text
  NgramGuesser ngrams_;
  SpeculationPace speculation_{Speculation::kOff};
};

}  // namespace doppler
