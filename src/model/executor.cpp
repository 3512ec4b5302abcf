#include "model/executor.h"

#include <fmt/format.h>

#include "base/error.h"

namespace doppler {

std::string pass_name(Phase phase, size_t tokens, size_t sequences, int position) {
  if (sequences > 1) return fmt::format("{} tokens of {} sequences", tokens, sequences);
  if (phase == Phase::kPrefill) return fmt::format("prefill of {} tokens at {}", tokens, position);
  return tokens == 1 ? fmt::format("token at {}", position) : fmt::format("{} tokens at {}", tokens, position);
}

void check_tokens(const ModelConfig& config, std::span<const int32_t> tokens, int position, int context) {
  if (tokens.empty())
    fail({.code = ErrorCode::kUsage, .what = "there are no tokens to run", .expected = "at least one", .got = "none"});
  if (!config.causal && position > 0) {
    fail({.code = ErrorCode::kUsage,
          .what = "a text whose tokens see those behind them cannot be gone on from",
          .expected = "the whole text at once",
          .got = fmt::format("{} tokens behind {}", tokens.size(), position)});
  }
  const int64_t end = position + static_cast<int64_t>(tokens.size());
  if (end > context) {
    fail({.code = ErrorCode::kUsage,
          .what = "the text is longer than the context",
          .expected = fmt::format("at most {} tokens", context),
          .got = fmt::format("{}", end),
          .todo = "Use a larger --context or a shorter text"});
  }
  for (const int32_t token : tokens) {
    if (token < 0 || token >= config.vocab) {
      fail({.code = ErrorCode::kUsage,
            .what = "a token is outside the model's vocabulary",
            .expected = fmt::format("0 to {}", config.vocab - 1),
            .got = std::to_string(token)});
    }
  }
}

void check_adapters(const Adapters* adapters, const Sequence& sequence) {
  const int count = adapters ? static_cast<int>(adapters->all.size()) : 0;
  for (const AdapterUse& use : sequence.adapters()) {
    if (use.adapter >= 0 && use.adapter < count) continue;
    fail({.code = ErrorCode::kUsage,
          .what = "there is no adapter of this number",
          .expected = count > 0 ? fmt::format("0 to {}", count - 1) : "none, since no adapter was loaded",
          .got = std::to_string(use.adapter)});
  }
}

std::vector<int32_t> Executor::decode(Sequence&, int32_t, int, const Sampling&, uint64_t, bool) { return {}; }

DecodeProfile Executor::profile(Sequence&, int32_t) { return {}; }

void Executor::set_tap_at(Tap tap, TapSteps steps) {
  if (!tap || steps.empty()) return set_tap(std::move(tap));
  set_tap([tap = std::move(tap), steps = std::move(steps)](const Step& step, std::span<const float> data, int tokens,
                                                           int position) {
    if (taps(steps, step)) tap(step, data, tokens, position);
  });
}

std::string Executor::kernel_of(const Step&) const { return ""; }

std::vector<KernelKind> Executor::kernel_kinds() const { return {}; }

DeviceCounters Executor::counters() const { return {}; }

void reserve_room(KvCache& cache, Sequence& sequence, int tokens, int back) {
  if (cache.reserve(sequence, tokens, back)) return;
  fail({.code = ErrorCode::kMemory,
        .what = "the cache of keys and values is full",
        .expected = fmt::format("{} free pages", cache.pages_for(sequence, tokens)),
        .got = fmt::format("{} of {}", cache.free_pages(), cache.pages()),
        .todo = "Use a larger --cache-memory or fewer sequences"});
}

std::span<const float> Context::forward(std::span<const int32_t> tokens, Logits want) {
  const BatchItem item{&sequence_, tokens, executor_.phase_of_prompt(tokens.size()), want};
  return executor_.run(std::span(&item, 1));
}

void Context::reset() {
  release();  // its pages may be all there are
  sequence_ = executor_.cache().start();
}

}  // namespace doppler
