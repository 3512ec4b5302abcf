#include "engine/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/not_finite.h"

namespace doppler {
namespace {

using Clock = std::chrono::steady_clock;
// Prompt tokens run between two looks at whether the caller wants to stop.
constexpr size_t kPrefillPiece = 512;

}  // namespace

std::string_view name_of(StopReason reason) {
  switch (reason) {
    case StopReason::kEnd: return "end";
    case StopReason::kStopText: return "stop";
    case StopReason::kMaxTokens: return "max_tokens";
    case StopReason::kContextFull: return "context";
    case StopReason::kInterrupted: return "interrupted";
    case StopReason::kNoToken: return "no_token";
    case StopReason::kNotFinite: return "not_finite";
    case StopReason::kWatchdog: return "watchdog";
  }
  return "?";
}

Session::Session(std::unique_ptr<Executor> executor, const Tokenizer* tokenizer, int context)
    : executor_(std::move(executor)), tokenizer_(tokenizer), context_(context) {}

std::span<const float> Session::prefill(std::span<const int32_t> prompt, const OnPiece& on_piece, Timing& timing) {
  // Longer than the context is refused before anything runs. One token of what is held must run again for its logits.
  if (prompt.size() > static_cast<size_t>(context_)) {
    fail({.code = ErrorCode::kUsage,
          .what = "the prompt is longer than the context",
          .expected = fmt::format("at most {} tokens", context_),
          .got = fmt::format("{}", prompt.size()),
          .todo = "Use a larger --context or a shorter prompt"});
  }
  const auto start = Clock::now();
  const std::span<const int32_t> held = sequence_ ? sequence_->tokens() : std::span<const int32_t>();
  const bool extends = sequence_ && held.size() < prompt.size() && std::equal(held.begin(), held.end(), prompt.begin());
  // A turn of a conversation, or a whole prompt: what is computed depends on its length alone, not on what is cached.
  const Phase phase = executor_->phase_of_prompt(prompt.size() - (extends ? held.size() : 0));
  if (!extends) {
    invalidate();
    sequence_ = executor_->cache().start();
    timing.found = executor_->cache().take_prefix(*sequence_, prompt, phase);
  }
  const auto length = [&] { return static_cast<size_t>(sequence_->length()); };
  if (tracing(Trace::kKv)) {
    trace(Trace::kKv, fmt::format("{} of {} prompt tokens are in the cache already; it has {} bytes", length(),
                                  prompt.size(), executor_->context_bytes()));
  }
  std::span<const float> logits;
  while (length() < prompt.size()) {
    const size_t size = std::min(kPrefillPiece, prompt.size() - length());
    const bool last = length() + size == prompt.size();
    const BatchItem item{&*sequence_, prompt.subspan(length(), size), phase, last ? Logits::kLast : Logits::kNone};
    logits = executor_->run(std::span(&item, 1));
    timing.prefilled += static_cast<int>(size);
    if (!last && on_piece && !on_piece("")) return {};
  }
  timing.prefill_ms = ms_since(start);
  if (tracing(Trace::kPerf)) {
    trace(Trace::kPerf, fmt::format("prefill of {} tokens: {:.2f} ms", timing.prefilled, timing.prefill_ms));
  }
  return logits;
}

int32_t Session::next(Answer& answer, const GenerateOptions& options, DecodePace& pace) {
  const int32_t token = answer.text().back();
  const int written = static_cast<int>(answer.result().token_ids.size()), wanted = options.max_tokens - written;
  if (ahead_.empty() && !Answer::needs_host(options)) {
    const auto start = Clock::now();
    const std::vector<int32_t> chosen =
        executor_->decode(*sequence_, token, std::min(wanted, pace.batch()), options.sampling,
                          static_cast<uint64_t>(written), wanted > pace.batch());
    pace.update(static_cast<int>(chosen.size()), ms_since(start));
    ahead_.assign(chosen.begin(), chosen.end());
    if (tracing(Trace::kPerf) && !chosen.empty()) {
      trace(Trace::kPerf, fmt::format("{} tokens at once: {:.2f} ms", chosen.size(), ms_since(start)));
    }
  }
  if (ahead_.empty()) return answer.choose(run_guesses(answer, options));
  const int32_t chosen = ahead_.front();
  ahead_.pop_front();
  return chosen;
}

// The logits behind the answer's last token: there already if it was guessed right.
std::span<const float> Session::run_guesses(Answer& answer, const GenerateOptions& options) {
  const int32_t token = answer.text().back();
  Timing& timing = answer.timing();
  const auto row = [&](size_t i) {
    const size_t vocab = guess_logits_.size() / (guesses_.size() + 1);
    return guess_logits_.subspan(i * vocab, vocab);
  };
  if (accepted_ < guesses_.size() && guesses_[accepted_] == token) {
    ++timing.accepted;
    return row(++accepted_);
  }
  drop_ahead();
  const auto start = Clock::now();
  if (options.speculation != Speculation::kOff && executor_->cache().can_rewind()) {
    Guesser& guesser = draft_ && options.speculation == Speculation::kAuto ? *draft_ : ngrams_;
    for (size_t i = guesser.size(); i < answer.text().size(); ++i) guesser.add(answer.text()[i]);
    const int left = std::min(options.max_tokens - static_cast<int>(answer.result().token_ids.size()) - 1,
                              context_ - sequence_->length() - 1);
    const int most = std::min(speculation_.guesses(), left);
    const std::span<const int32_t> guess = guesser.guess(static_cast<size_t>(std::max(0, most)));
    guesses_.assign(guess.begin(), guess.end());
  }
  timing.guessed += static_cast<int>(guesses_.size());
  std::vector<int32_t> tokens = {token};
  tokens.insert(tokens.end(), guesses_.begin(), guesses_.end());
  const BatchItem item{&*sequence_, tokens, Phase::kDecode, guesses_.empty() ? Logits::kLast : Logits::kAll};
  guess_logits_ = executor_->run(std::span(&item, 1));
  pass_ms_ = ms_since(start);
  return row(0);
}

void Session::drop_ahead() {
  const size_t unwanted = ahead_.size() + guesses_.size() - accepted_;
  if (guess_logits_.data())
    speculation_.update(static_cast<int>(guesses_.size()), static_cast<int>(accepted_), pass_ms_);
  if (unwanted > 0) executor_->cache().truncate(*sequence_, sequence_->length() - static_cast<int>(unwanted));
  ahead_.clear();
  guesses_.clear();
  guess_logits_ = {};
  accepted_ = 0;
}

void Session::set_draft(std::unique_ptr<Executor> draft) {
  draft_ = std::make_unique<DraftGuesser>(std::move(draft), context_);
}

void Session::invalidate() {
  sequence_.reset();
  ahead_.clear();
  guesses_.clear();
  guess_logits_ = {};
  accepted_ = 0;
}

Generation Session::generate(std::span<const int32_t> prompt, const GenerateOptions& options, const OnPiece& on_piece) {
  const auto start = Clock::now();
  Answer answer(prompt, options, tokenizer_, context_);
  DecodePace pace(options.decode_batch);
  ngrams_.clear();
  if (draft_) draft_->clear();
  speculation_ = SpeculationPace(options.speculation);
  const std::span<const float> logits = prefill(prompt, on_piece, answer.timing());
  if (logits.empty()) answer.interrupt();
  const auto check_watch = [&] {
    if (!options.watch) return;
    if (std::optional<Error> fault = options.watch->take_error()) answer.fail(std::move(*fault));
  };
  check_watch();
  int32_t token = answer.ended() ? -1 : answer.choose(logits);
  answer.timing().first_token_ms = ms_since(start);
  const Clock::time_point decode_start = Clock::now();
  while (!answer.ended()) {
    const std::string piece = answer.push(token);
    if (on_piece && !on_piece(piece)) answer.interrupt();
    if (answer.ended()) break;
    token = next(answer, options, pace);
    ++answer.timing().decoded;
    check_watch();
  }
  if (answer.fault()) {
    invalidate();
    fail(*answer.fault());
  }
  if (answer.not_finite()) {
    invalidate();  // its pages are needed to look for the step
    fail(explain_not_finite(*executor_, answer.text(), prompt.size()));
  }
  drop_ahead();
  answer.timing().decode_ms = ms_since(decode_start);
  const std::string rest = answer.finish();
  if (on_piece && !rest.empty()) on_piece(rest);
  return answer.take();
}

}  // namespace doppler
