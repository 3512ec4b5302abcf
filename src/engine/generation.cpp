#include "engine/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/log.h"
#include "format/decode.h"

namespace doppler {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

}  // namespace

Answer::Answer(std::span<const int32_t> prompt, const GenerateOptions& options, const Tokenizer* tokenizer, int context)
    : options_(options),
      context_(context),
      sampler_(options.sampling),
      stops_(options.stop_texts),
      text_(prompt.begin(), prompt.end()) {
  if (tokenizer) decoder_.emplace(*tokenizer, /*skip_special=*/!options.show_special);
  if (options.grammar) constraint_ = options.grammar->begin();
}

int32_t Answer::choose(std::span<const float> logits) {
  // What is not edited is looked at while it is searched.
  const bool searched = !options_.edits.any() && !constraint_;
  if (!searched && !all_finite(logits.data(), logits.size())) {
    end(StopReason::kNotFinite);
    return -1;
  }
  const std::span<const float> from = edited(logits);
  if (constraint_ && !mask(from)) {
    end(StopReason::kNoToken);
    return -1;
  }
  int32_t token = sampler_.sample(constraint_ ? masked_ : from, text_, result_.token_ids.size());
  // A penalty can make a large number infinite, which is no fault of the model's.
  if (searched && !sampler_.finite() && !all_finite(logits.data(), logits.size())) {
    end(StopReason::kNotFinite);
    return -1;
  }
  if (constraint_ && masked_[static_cast<size_t>(token)] == kMasked) {
    // All that is allowed is no number, or as unlikely as what is not: the first of it.
    token = static_cast<int32_t>(
        std::find_if(masked_.begin(), masked_.end(), [](float logit) { return logit != kMasked; }) - masked_.begin());
  }
  if (options_.logprobs >= 0) note_logprobs(logits, token);
  return token;
}

std::span<const float> Answer::edited(std::span<const float> logits) {
  const LogitEdits& edits = options_.edits;
  if (!edits.any()) return logits;
  edited_.assign(logits.begin(), logits.end());
  for (const auto& [id, bias] : edits.bias) edited_[static_cast<size_t>(id)] += bias;
  for (const auto& [id, count] : counts_) {
    edited_[static_cast<size_t>(id)] -= edits.presence_penalty + edits.frequency_penalty * static_cast<float>(count);
  }
  return edited_;
}

void Answer::note_logprobs(std::span<const float> logits, int32_t chosen) {
  const float highest = logits[static_cast<size_t>(argmax(logits))];
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit) - highest);
  const double log_total = highest + std::log(total);
  const auto logprob = [&](int32_t id) { return static_cast<float>(logits[static_cast<size_t>(id)] - log_total); };
  noted_.chosen = logprob(chosen);
  noted_.likeliest.clear();
  const auto likelier = [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  };
  // A heap of the likeliest so far, the least of them in front.
  const size_t most = std::min(static_cast<size_t>(options_.logprobs), logits.size());
  for (size_t i = 0; most > 0 && i < logits.size(); ++i) {
    const std::pair<int32_t, float> candidate(static_cast<int32_t>(i), logits[i]);
    if (noted_.likeliest.size() == most) {
      if (!likelier(candidate, noted_.likeliest.front())) continue;
      std::pop_heap(noted_.likeliest.begin(), noted_.likeliest.end(), likelier);
      noted_.likeliest.back() = candidate;
    } else {
      noted_.likeliest.push_back(candidate);
    }
    std::push_heap(noted_.likeliest.begin(), noted_.likeliest.end(), likelier);
  }
  std::sort_heap(noted_.likeliest.begin(), noted_.likeliest.end(), likelier);
  for (auto& [id, value] : noted_.likeliest) value = logprob(id);
}

bool Answer::mask(std::span<const float> logits) {
  constexpr float kLeast = std::numeric_limits<float>::lowest();
  const std::span<const uint64_t> words = constraint_->allowed().words();
  masked_.assign(logits.size(), kMasked);
  bool any = false;
  // An allowed token's own −∞ becomes the smallest number, so that it can be told from one that is not allowed.
  const auto allow = [&](size_t id) {
    masked_[id] = std::max(logits[id], kLeast);
    any = true;
  };
  for (size_t w = 0; w < words.size() && w * 64 < logits.size(); ++w) {
    const size_t begin = w * 64, end = std::min(begin + 64, logits.size());
    if (words[w] == ~uint64_t{0}) {
      for (size_t id = begin; id < end; ++id) masked_[id] = std::max(logits[id], kLeast);
      any = true;
      continue;
    }
    for (uint64_t bits = words[w]; bits != 0; bits &= bits - 1) {
      const size_t id = begin + static_cast<size_t>(std::countr_zero(bits));
      if (id < end) allow(id);
    }
  }
  for (const int32_t id : options_.end_ids) {
    if (id < 0 || static_cast<size_t>(id) >= logits.size()) continue;
    masked_[static_cast<size_t>(id)] = kMasked;
    if (constraint_->may_end()) allow(static_cast<size_t>(id));
  }
  return any;
}

std::string Answer::push(int32_t token) {
  if (token < 0) {
    end(StopReason::kNotFinite);
    return "";
  }
  if (std::find(options_.end_ids.begin(), options_.end_ids.end(), token) != options_.end_ids.end()) {
    end(StopReason::kEnd);
    return "";
  }
  if (constraint_ && !constraint_->accept(token)) {
    end(StopReason::kNoToken);
    return "";
  }
  if (tracing(Trace::kSample)) trace(Trace::kSample, fmt::format("token {}: {}", result_.token_ids.size(), token));
  result_.token_ids.push_back(token);
  if (options_.edits.any()) ++counts_[token];
  if (options_.logprobs >= 0) result_.logprobs.push_back(std::move(noted_));
  text_.push_back(token);
  std::string piece = decoder_ ? stops_.push(decoder_->push(token)) : "";
  result_.text += piece;
  if (options_.watch) {
    if (std::optional<Error> fault = options_.watch->look(result_.token_ids)) fail(std::move(*fault));
  }
  if (ended_) return piece;
  if (stops_.found()) {
    end(StopReason::kStopText);
  } else if (constraint_ && constraint_->must_end()) {
    end(StopReason::kEnd);
  } else if (static_cast<int>(result_.token_ids.size()) >= options_.max_tokens) {
    end(StopReason::kMaxTokens);
  } else if (static_cast<int>(text_.size()) > context_) {
    end(StopReason::kContextFull);
  }
  return piece;
}

void Answer::fail(Error fault) {
  if (ended_) return;
  fault_ = std::move(fault);
  end(StopReason::kWatchdog);
}

void Answer::interrupt() {
  if (!ended_) end(StopReason::kInterrupted);
}

std::string Answer::finish() {
  std::string rest = decoder_ && !stops_.found() ? stops_.push(decoder_->finish()) : "";
  if (!stops_.found()) rest += stops_.finish();
  result_.text += rest;
  return rest;
}

void Answer::end(StopReason reason) {
  ended_ = true;
  result_.stop_reason = reason;
}

}  // namespace doppler
