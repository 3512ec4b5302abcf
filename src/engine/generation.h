// What is asked for and what comes back when a model writes: options, reasons, times; and one answer as it comes to
// be, the same whoever runs the model for it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/sampler.h"
#include "engine/speculate.h"
#include "grammar/token_constraint.h"
#include "model/sampling.h"
#include "tokenizer/stop_matcher.h"
#include "tokenizer/tokenizer.h"

namespace doppler {

enum class StopReason : uint8_t {
  kEnd,
  kStopText,
  kMaxTokens,
  kContextFull,
  kInterrupted,
  kNoToken,
  kNotFinite,
  kWatchdog
};
// "end", "stop", "max_tokens", "context", "interrupted", "no_token", "not_finite", "watchdog"
std::string_view name_of(StopReason reason);

// What is added to the logits before a token is drawn from them, on the host.
struct LogitEdits {
  float frequency_penalty = 0;                       // taken off a token's logit for each time the answer has it
  float presence_penalty = 0;                        // taken off once if the answer has it
  std::vector<std::pair<int32_t, float>> bias = {};  // token, what is added
  bool any() const { return frequency_penalty != 0 || presence_penalty != 0 || !bias.empty(); }
};

// Looks at answers as they come to be, for what no healthy model does (watchdog.h). What it returns ends the answer.
class AnswerWatch {
 public:
  virtual ~AnswerWatch() = default;
  // The answer's tokens so far.
  virtual std::optional<Error> look(std::span<const int32_t> answer) = 0;
  // What was seen of the steps of the first sequence that ran since the last call.
  virtual std::optional<Error> take_error() = 0;
};

struct GenerateOptions {
  int max_tokens = 256;
  Sampling sampling = {};
  LogitEdits edits = {};
  int logprobs = -1;  // how many of the likeliest tokens to report at each place, beside the chosen one; -1: none
  bool show_special = false;  // special tokens are part of the text: for formats that are written with them
  std::vector<std::string> stop_texts = {};     // generation ends before any of these appears
  std::vector<int32_t> end_ids = {};            // generation ends at any of these, which are not part of the answer
  int decode_batch = 0;                         // tokens that a backend may choose by itself; 0: see DecodePace
  Speculation speculation = Speculation::kOff;  // where the backend leaves the choice to us
  // What the answer must match; null: nothing. Where no token can go on, it ends with kNoToken.
  std::shared_ptr<const TokenGrammar> grammar = {};
  std::shared_ptr<AnswerWatch> watch = {};  // null: nobody looks
};

struct Timing {
  double queued_ms = 0;           // before the first of its tokens ran
  double prefill_ms = 0;          // the prompt, up to its last logits
  double first_token_ms = 0;      // from the call to the first token chosen
  double decode_ms = 0;           // all tokens after the first
  int found = 0;                  // prompt tokens whose keys and values were there
  int prefilled = 0;              // prompt tokens that were run
  int decoded = 0;                // tokens run after the prompt
  int guessed = 0, accepted = 0;  // of them tokens that speculation tried, and those that were right
  double prefill_tok_s() const { return prefill_ms > 0 ? prefilled * 1e3 / prefill_ms : 0; }
  double decode_tok_s() const { return decode_ms > 0 ? decoded * 1e3 / decode_ms : 0; }
};

// Log-probabilities as the model gives them: before penalties, temperature and whatever else chooses.
struct TokenLogprobs {
  float chosen = 0;
  std::vector<std::pair<int32_t, float>> likeliest = {};  // the likeliest first
};

struct Generation {
  std::vector<int32_t> token_ids;       // the answer, the end token left out
  std::vector<TokenLogprobs> logprobs;  // of each, if they were asked for
  std::string text;                     // empty without a tokenizer
  StopReason stop_reason = StopReason::kEnd;
  Timing timing;
};

// One answer: tokens go in, text that is certain comes out, until something ends it.
class Answer {
 public:
  // `tokenizer` may be null: then only ids come back. It must outlive the answer. A text of prompt and answer longer
  // than `context` cannot go on.
  Answer(std::span<const int32_t> prompt, const GenerateOptions& options, const Tokenizer* tokenizer, int context);

  // The next token, drawn from these logits: a pure function of them, the text so far and the options. Ends the answer
  // where the grammar allows none, and where a logit is no finite number.
  int32_t choose(std::span<const float> logits);
  // Whether a backend that chooses by itself would choose the same.
  static bool needs_host(const GenerateOptions& options) {
    return options.edits.any() || options.logprobs >= 0 || options.grammar;
  }

  // Is the likeliest token, and nothing else of the logits, what choose() would look at?
  bool wants_best() const {
    return options_.sampling.temperature == 0 && options_.sampling.repeat_penalty == 1 && !needs_host(options_);
  }

  // Takes the next token, whoever chose it; ends the answer at a negative one (Executor::decode). Returns the text that
  // can be shown now (whole characters; may be empty).
  std::string push(int32_t token);
  // The reader wants no more. An answer that has ended already keeps its reason.
  void interrupt();
  bool ended() const { return ended_; }
  bool not_finite() const { return ended_ && result_.stop_reason == StopReason::kNotFinite; }
  // It cannot go on.
  void fail(Error fault);
  const std::optional<Error>& fault() const { return fault_; }
  AnswerWatch* watch() const { return options_.watch.get(); }
  // After the end, once: the text that was held back.
  std::string finish();

  std::span<const int32_t> text() const { return text_; }  // the prompt and the answer's tokens
  const Generation& result() const { return result_; }
  Generation take() { return std::move(result_); }
  Timing& timing() { return result_.timing; }

 private:
  void end(StopReason reason);
  std::span<const float> edited(std::span<const float> logits);
  void note_logprobs(std::span<const float> logits, int32_t chosen);
  // Sets what the grammar does not allow to −∞; false if that is everything.
  bool mask(std::span<const float> logits);

  GenerateOptions options_;
  int context_;
  Sampler sampler_;
  StopMatcher stops_;
  std::optional<StreamDecoder> decoder_;
  std::vector<int32_t> text_;
  std::unique_ptr<TokenConstraint> constraint_;  // null without a grammar
  std::vector<float> masked_;
  Generation result_;
  std::map<int32_t, int> counts_;  // of the answer's tokens, where they are penalised
  std::vector<float> edited_;      // logits
  TokenLogprobs noted_;            // of the token chosen last
  bool ended_ = false;
  std::optional<Error> fault_;
};

}  // namespace doppler
