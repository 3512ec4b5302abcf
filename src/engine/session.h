// A conversation with a model: tokens go in, tokens come out, and the context is kept between calls.
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
#include "engine/sampler.h"
#include "model/executor.h"
#include "tokenizer/tokenizer.h"

namespace doppler {

enum class StopReason : uint8_t { kEnd, kStopText, kMaxTokens, kContextFull, kInterrupted };
std::string_view name_of(StopReason reason);  // "end", "stop", "max_tokens", "context", "interrupted"

struct GenerateOptions {
  int max_tokens = 256;
  Sampling sampling = {};
  std::vector<std::string> stop_texts = {};  // generation ends before any of these appears
  std::vector<int32_t> end_ids = {};         // generation ends at any of these, which are not part of the answer
  int decode_batch = 0;                      // tokens that a backend may choose by itself; 0: see DecodePace
};

struct Timing {
  double prefill_ms = 0;      // the prompt, up to its last logits
  double first_token_ms = 0;  // from the call to the first token chosen
  double decode_ms = 0;       // all tokens after the first
  int prefilled = 0;          // prompt tokens that were run (those already in the context were not)
  int decoded = 0;            // tokens run after the prompt
  double prefill_tok_s() const { return prefill_ms > 0 ? prefilled * 1e3 / prefill_ms : 0; }
  double decode_tok_s() const { return decode_ms > 0 ? decoded * 1e3 / decode_ms : 0; }
};

struct Generation {
  std::vector<int32_t> token_ids;  // the answer, the end token left out
  std::string text;                // empty without a tokenizer
  StopReason stop_reason = StopReason::kEnd;
  Timing timing;
};

// Called with each piece of text as soon as it is certain (whole characters; may be empty). Return false to stop.
using OnPiece = std::function<bool(std::string_view piece)>;

class Session {
 public:
  // `tokenizer` may be null: then only ids come back. It must outlive the session.
  Session(std::unique_ptr<Executor> executor, const Tokenizer* tokenizer, int context);

  // Runs `prompt` (the whole text so far) and goes on from it. What the context already holds of it is not run again.
  Generation generate(std::span<const int32_t> prompt, const GenerateOptions& options, const OnPiece& on_piece = {});

  // After somebody else has used the executor: what the context held is gone.
  void invalidate();

  Executor& executor() { return *executor_; }
  int context() const { return context_; }

 private:
  // Makes the context hold exactly `prompt` and returns its last logits, or none if on_piece asked to stop.
  std::span<const float> prefill(std::span<const int32_t> prompt, const OnPiece& on_piece, Timing& timing);
  void drop_ahead();  // takes back the tokens the backend ran that nobody wanted
  // The token after `token`: from the backend's own choices where it makes them, else sampled here.
  int32_t next(int32_t token, int wanted, const GenerateOptions& options, DecodePace& pace, Sampler& sampler,
               std::span<const int32_t> text, uint64_t draw);

  std::unique_ptr<Executor> executor_;
  const Tokenizer* tokenizer_;
  int context_;
  std::vector<int32_t> held_;  // the tokens whose keys and values are in the executor's context
  std::deque<int32_t> ahead_;  // tokens the backend chose that nobody has looked at yet
};

}  // namespace doppler
