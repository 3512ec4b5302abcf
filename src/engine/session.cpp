#include "engine/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "tokenizer/stop_matcher.h"

namespace doppler {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

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
  const bool extends = held_.size() < prompt.size() && std::equal(held_.begin(), held_.end(), prompt.begin());
  if (!extends) invalidate();
  if (tracing(Trace::kKv)) {
    trace(Trace::kKv, fmt::format("{} of {} prompt tokens are in the context already; the cache has {} bytes",
                                  held_.size(), prompt.size(), executor_->context_bytes()));
  }
  const auto start = Clock::now();
  std::span<const float> logits;
  while (held_.size() < prompt.size()) {
    const size_t size = std::min(kPrefillPiece, prompt.size() - held_.size());
    const std::span<const int32_t> piece = prompt.subspan(held_.size(), size);
    const bool last = held_.size() + size == prompt.size();
    logits = executor_->forward(piece, last ? Logits::kLast : Logits::kNone);
    held_.insert(held_.end(), piece.begin(), piece.end());
    timing.prefilled += static_cast<int>(size);
    if (!last && on_piece && !on_piece("")) return {};
  }
  timing.prefill_ms = ms_since(start);
  if (tracing(Trace::kPerf)) {
    trace(Trace::kPerf, fmt::format("prefill of {} tokens: {:.2f} ms", timing.prefilled, timing.prefill_ms));
  }
  return logits;
}

int32_t Session::next(int32_t token, int wanted, const GenerateOptions& options, DecodePace& pace, Sampler& sampler,
                      std::span<const int32_t> text, uint64_t draw) {
  if (ahead_.empty()) {
    const auto start = Clock::now();
    const std::vector<int32_t> chosen =
        executor_->decode(token, std::min(wanted, pace.batch()), options.sampling, draw, wanted > pace.batch());
    pace.update(static_cast<int>(chosen.size()), ms_since(start));
    ahead_.assign(chosen.begin(), chosen.end());
    if (tracing(Trace::kPerf) && !chosen.empty()) {
      trace(Trace::kPerf, fmt::format("{} tokens at once: {:.2f} ms", chosen.size(), ms_since(start)));
    }
  }
  held_.push_back(token);
  if (ahead_.empty()) {
    return sampler.sample(executor_->forward(std::span(&token, 1), Logits::kLast), text, draw);
  }
  const int32_t chosen = ahead_.front();
  ahead_.pop_front();
  return chosen;
}

void Session::drop_ahead() {
  if (!ahead_.empty()) executor_->rewind(static_cast<int>(held_.size()));
  ahead_.clear();
}

void Session::invalidate() {
  executor_->reset();
  held_.clear();
}

Generation Session::generate(std::span<const int32_t> prompt, const GenerateOptions& options, const OnPiece& on_piece) {
  const auto start = Clock::now();
  Generation result;
  Sampler sampler(options.sampling);
  DecodePace pace(options.decode_batch);
  StopMatcher stops(options.stop_texts);
  std::optional<StreamDecoder> decoder;
  if (tokenizer_) decoder.emplace(*tokenizer_, /*skip_special=*/true);
  const auto show = [&](std::string text) {  // false: the caller wants to stop
    text = stops.push(text);
    result.text += text;
    return !on_piece || on_piece(text);
  };

  std::vector<int32_t> text(prompt.begin(), prompt.end());
  const std::span<const float> logits = prefill(prompt, on_piece, result.timing);
  result.stop_reason = logits.empty() ? StopReason::kInterrupted : StopReason::kMaxTokens;
  int32_t token = logits.empty() ? -1 : sampler.sample(logits, text, 0);
  result.timing.first_token_ms = ms_since(start);
  const Clock::time_point decode_start = Clock::now();
  while (token >= 0) {
    if (std::find(options.end_ids.begin(), options.end_ids.end(), token) != options.end_ids.end()) {
      result.stop_reason = StopReason::kEnd;
      break;
    }
    if (tracing(Trace::kSample)) trace(Trace::kSample, fmt::format("token {}: {}", result.token_ids.size(), token));
    result.token_ids.push_back(token);
    text.push_back(token);
    if (!show(decoder ? decoder->push(token) : "")) {
      result.stop_reason = StopReason::kInterrupted;
      break;
    }
    if (stops.found()) {
      result.stop_reason = StopReason::kStopText;
      break;
    }
    if (static_cast<int>(result.token_ids.size()) == options.max_tokens) break;
    if (static_cast<int>(text.size()) > context_) {
      result.stop_reason = StopReason::kContextFull;
      break;
    }
    token = next(token, options.max_tokens - static_cast<int>(result.token_ids.size()), options, pace, sampler, text,
                 result.token_ids.size());
    ++result.timing.decoded;
  }
  drop_ahead();
  result.timing.decode_ms = ms_since(decode_start);
  if (decoder && !stops.found()) show(decoder->finish());
  if (!stops.found()) {
    const std::string rest = stops.finish();
    result.text += rest;
    if (on_piece && !rest.empty()) on_piece(rest);
  }
  return result;
}

}  // namespace doppler
