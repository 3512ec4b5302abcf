#include "engine/speculate.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "engine/sampler.h"

namespace doppler {

Speculation speculation_named(std::string_view name) {
  for (size_t i = 0; i < std::size(kSpeculationNames); ++i) {
    if (name == kSpeculationNames[i]) return static_cast<Speculation>(i);
  }
  fail({.code = ErrorCode::kUsage,
        .what = "there is no speculation of that name",
        .expected = "auto, ngram or off",
        .got = std::string(name)});
}

uint64_t NgramGuesser::key(size_t end, size_t length) const {
  uint64_t key = length;
  for (size_t i = end - length; i < end; ++i)
    key = (key ^ static_cast<uint32_t>(text_[i])) * 0x9e3779b97f4a7c15 + (key >> 29);
  return key;
}

void NgramGuesser::add(int32_t token) {
  const size_t end = text_.size();
  for (size_t n = kShortest; n <= std::min(kLongest, end); ++n) after_[key(end, n)] = end;
  text_.push_back(token);
}

std::span<const int32_t> NgramGuesser::guess(size_t most) {
  for (size_t n = std::min(kLongest, text_.size()); n >= kShortest; --n) {
    const auto found = after_.find(key(text_.size(), n));
    if (found == after_.end()) continue;
    return std::span(text_).subspan(found->second, std::min(most, text_.size() - found->second));
  }
  return {};
}

DraftGuesser::DraftGuesser(std::unique_ptr<Executor> draft, int context)
    : draft_(std::move(draft)), context_(static_cast<size_t>(context)), sequence_(draft_->cache().start()) {}

std::span<const int32_t> DraftGuesser::guess(size_t most) {
  guesses_.clear();
  most = std::min(most, context_ - std::min(context_, text_.size()));
  if (most == 0 || text_.empty()) return {};
  KvCache& cache = draft_->cache();
  const std::span<const int32_t> held = sequence_.tokens();
  if (held.size() >= text_.size() || !std::equal(held.begin(), held.end(), text_.begin())) {
    sequence_ = Sequence();
    sequence_ = cache.start();
    cache.take_prefix(sequence_, text_, draft_->phase_of_prompt(text_.size()));
  }
  const auto run = [&](Sequence& sequence, std::span<const int32_t> tokens) {
    const BatchItem item{&sequence, tokens, draft_->phase_of_prompt(tokens.size()), Logits::kLast};
    guesses_.push_back(argmax(draft_->run(std::span(&item, 1))));
  };
  // What was accepted of the last guesses and the token after them run together.
  run(sequence_, std::span(text_).subspan(static_cast<size_t>(sequence_.length())));
  if (most == 1) return guesses_;
  Sequence fork = cache.fork(sequence_);
  while (guesses_.size() < most) {
    const int32_t last = guesses_.back();
    run(fork, std::span(&last, 1));
  }
  return guesses_;
}

int SpeculationPace::guesses() const {
  if (mode_ == Speculation::kOff) return 0;
  if (mode_ == Speculation::kNgram) return kMostGuesses;
  return pause_ > 0 || single_ms_ == 0 ? 0 : length_;
}

void SpeculationPace::update(int guessed, int accepted, double ms) {
  constexpr double kKept = 0.75;  // of what was known, per pass
  if (guessed == 0) {
    single_ms_ = single_ms_ == 0 ? ms : kKept * single_ms_ + (1 - kKept) * ms;
    pause_ = std::max(0, pause_ - 1);
    return;
  }
  length_ = accepted == guessed ? std::min(2 * length_, kMostGuesses) : std::max(1, accepted);
  gain_ = kKept * gain_ + (1 - kKept) * (accepted + 1) * single_ms_ / std::max(ms, 1e-6);
  if (gain_ >= 1) return;
  pause_ = next_pause_;  // and longer every time
  next_pause_ = std::min(2 * next_pause_, 256);
  gain_ = 1.25;
  length_ = 2;
}

}  // namespace doppler
