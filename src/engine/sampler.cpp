#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "base/error.h"
#include "engine/random.h"
#include "format/decode.h"

namespace doppler {
namespace {

void require_range(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) return;
  fail({.code = ErrorCode::kUsage,
        .what = "a sampling option is out of range",
        .where = name,
        .expected = std::isinf(high) ? fmt::format("{} or more", low) : fmt::format("{} to {}", low, high),
        .got = fmt::format("{}", value)});
}

}  // namespace

void check(const Sampling& s) {
  const double any = std::numeric_limits<double>::infinity();
  require_range("temperature", s.temperature, 0, any);
  require_range("top-k", s.top_k, 0, any);
  require_range("top-p", s.top_p, 0, 1);
  require_range("min-p", s.min_p, 0, 1);
  require_range("repeat-penalty", s.repeat_penalty, 0.01, 100);
}

Sampler::Sampler(const Sampling& sampling) : options_(sampling) { check(sampling); }

namespace {

// The largest of a block, NaN ignored; −∞ where there is nothing else. Adds the block to `sums`, which stay finite
// only where every logit is. Lanes, so that it is done with vectors: on a CPU the vocabulary is searched while every
// core but one waits.
constexpr size_t kArgmaxBlock = 256, kLanes = 16;
using LaneSums = std::array<float, kLanes>;
float largest(const float* x, LaneSums& sums) {
  float most[kLanes], sum[kLanes];
  std::fill(most, most + kLanes, -std::numeric_limits<float>::infinity());
  std::copy(sums.begin(), sums.end(), sum);
  for (size_t i = 0; i < kArgmaxBlock; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      most[lane] = x[i + lane] > most[lane] ? x[i + lane] : most[lane];
      sum[lane] += x[i + lane];
    }
  }
  std::copy(sum, sum + kLanes, sums.begin());
  return *std::max_element(most, most + kLanes);
}

// The first of the largest in [begin, end), NaN ignored.
size_t first_largest(std::span<const float> logits, size_t begin, size_t end) {
  size_t best = begin;
  for (size_t i = begin + 1; i < end; ++i) {
    if (logits[i] > logits[best] || std::isnan(logits[best])) best = i;
  }
  return best;
}

}  // namespace

Likeliest likeliest(std::span<const float> logits) {
  size_t best = 0, at = 0;
  LaneSums sums{};
  float most = -std::numeric_limits<float>::infinity();
  for (; at + kArgmaxBlock <= logits.size(); at += kArgmaxBlock) {
    const float here = largest(logits.data() + at, sums);
    if (here > most) {
      most = here;
      best = at;
    }
  }
  best = first_largest(logits, best, std::min(best + kArgmaxBlock, logits.size()));
  if (at < logits.size()) {
    const size_t rest = first_largest(logits, at, logits.size());
    if (logits[rest] > logits[best] || std::isnan(logits[best])) best = rest;
  }
  // A block without a number hides −∞ in others; of nothing but NaN it is the last.
  if (!logits.empty() && std::isnan(logits[best])) best = first_largest(logits, 0, logits.size());
  // A sum of finite logits can still be too large for a float: then each of them is looked at.
  const bool finite = std::isfinite(std::accumulate(sums.begin(), sums.end(), 0.0f)) &&
                      all_finite(logits.data() + at, logits.size() - at);
  return {static_cast<int32_t>(best), finite || all_finite(logits.data(), logits.size())};
}

int32_t Sampler::sample(std::span<const float> logits, std::span<const int32_t> text, uint64_t index) {
  if (options_.repeat_penalty != 1) {
    penalised_.assign(logits.begin(), logits.end());
    for (const int32_t id : text) {  // a token's penalty applies once, however often it appears: from the original
      const float logit = logits[static_cast<size_t>(id)];
      penalised_[static_cast<size_t>(id)] =
          logit > 0 ? logit / options_.repeat_penalty : logit * options_.repeat_penalty;
    }
    logits = penalised_;
  }
  const Likeliest first = likeliest(logits);
  finite_ = first.finite;
  if (options_.temperature == 0) return first.id;

  const float highest = logits[static_cast<size_t>(first.id)];
  // exp((l − highest) / T) underflows to nothing below this, so such tokens can never be drawn.
  const float lowest = highest - 104 * options_.temperature;
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] >= lowest) candidates_.push_back({logits[i], static_cast<int32_t>(i)});
  }
  if (candidates_.empty()) return first.id;  // all NaN: nothing to draw from

  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  if (options_.top_k > 0 && static_cast<size_t>(options_.top_k) < candidates_.size()) {
    const auto kept = candidates_.begin() + options_.top_k;
    std::nth_element(candidates_.begin(), kept, candidates_.end(), likelier);
    candidates_.erase(kept, candidates_.end());
  }
  std::sort(candidates_.begin(), candidates_.end(), likelier);

  weights_.clear();
  double total = 0;
  for (const Candidate& candidate : candidates_) {
    weights_.push_back(std::exp((static_cast<double>(candidate.logit) - highest) / options_.temperature));
    total += weights_.back();
  }
  size_t keep = weights_.size();
  if (options_.top_p < 1) {
    double sum = 0;
    for (keep = 0; keep < weights_.size() && (keep == 0 || sum < options_.top_p * total); ++keep) sum += weights_[keep];
  }
  while (keep > 1 && weights_[keep - 1] < options_.min_p * weights_[0]) --keep;

  total = 0;
  for (size_t i = 0; i < keep; ++i) total += weights_[i];
  double left = uniform(options_.seed, index) * total;
  for (size_t i = 0; i + 1 < keep; ++i) {
    left -= weights_[i];
    if (left < 0) return candidates_[i].id;
  }
  return candidates_[keep - 1].id;
}

}  // namespace doppler
