#include "bench/quality.h"

#include <fmt/format.h>

#include <algorithm>

namespace doppler {
namespace {

constexpr size_t kLongestCycle = 8, kLeastTokens = 16;

// The shortest cycle that the last half of the tokens repeats; 0: none.
size_t cycle_of(std::span<const int32_t> tokens) {
  const std::span<const int32_t> tail = tokens.last(tokens.size() / 2);
  for (size_t period = 1; period <= kLongestCycle && 2 * period <= tail.size(); ++period) {
    bool repeats = true;
    for (size_t i = period; i < tail.size() && repeats; ++i) repeats = tail[i] == tail[i - period];
    if (repeats) return period;
  }
  return 0;
}

}  // namespace

Quality judge_tokens(std::span<const int32_t> tokens, const std::function<bool(int32_t)>& special) {
  Quality quality;
  if (tokens.empty()) quality.reasons.push_back("nothing came out");
  if (tokens.size() >= kLeastTokens) {
    if (const size_t period = cycle_of(tokens)) {
      quality.reasons.push_back(period == 1 ? fmt::format("token {} is repeated", tokens.back())
                                            : fmt::format("a cycle of {} tokens is repeated", period));
    }
  }
  const auto specials = std::count_if(tokens.begin(), tokens.end(), special);
  if (specials > 1 && static_cast<size_t>(specials) * 4 > tokens.size()) {
    quality.reasons.push_back(fmt::format("{} of {} tokens are special ones", specials, tokens.size()));
  }
  quality.ok = quality.reasons.empty();
  return quality;
}

Json Quality::to_json() const {
  Json json = {{"ok", ok}, {"reasons", reasons}};
  if (token_match) json["token_match"] = *token_match;
  if (perplexity) json["perplexity"] = *perplexity;
  return json;
}

}  // namespace doppler
