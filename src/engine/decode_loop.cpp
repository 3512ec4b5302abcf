#include "engine/decode_loop.h"

#include <chrono>

#include "base/clock.h"
#include "base/error.h"
#include "engine/not_finite.h"
#include "engine/sampler.h"

namespace doppler {
namespace {

using Clock = std::chrono::steady_clock;
}  // namespace

GreedyRun run_greedy(Executor& executor, std::span<const int32_t> prompt, int32_t first, int tokens, DecodePace& pace) {
  GreedyRun run;
  Context context(executor);
  int32_t token = first;
  std::vector<int32_t> text(prompt.begin(), prompt.end());  // that ran
  const auto take = [&](int32_t chosen) {
    if (chosen < 0) {
      context.release();
      fail(explain_not_finite(executor, text, prompt.size()));
    }
    run.ids.push_back(chosen);
    text.push_back(chosen);
  };
  const auto choose = [](std::span<const float> logits) {
    const Likeliest choice = likeliest(logits);
    return choice.finite ? choice.id : ~choice.id;
  };
  if (!prompt.empty()) {
    const auto start = Clock::now();
    token = choose(context.forward(prompt, Logits::kLast));
    run.first_token_ms = ms_since(start);
  }
  take(token);
  const DeviceCounters before = executor.counters();
  while (static_cast<int>(run.token_ms.size()) < tokens) {
    const int left = tokens - static_cast<int>(run.token_ms.size()), wanted = std::min(pace.batch(), left);
    const auto start = Clock::now();
    std::vector<int32_t> chosen = context.decode(token, wanted, {}, run.token_ms.size(), left > wanted);
    if (chosen.empty()) chosen.push_back(choose(context.forward(std::span(&token, 1), Logits::kLast)));
    token = chosen.back();
    const double ms = ms_since(start);
    pace.update(static_cast<int>(chosen.size()), ms);
    run.token_ms.insert(run.token_ms.end(), chosen.size(), ms / static_cast<double>(chosen.size()));
    for (const int32_t id : chosen) take(id);
  }
  const DeviceCounters after = executor.counters();
  run.spent = {.submits = after.submits - before.submits,
               .dispatches = after.dispatches - before.dispatches,
               .bytes = after.bytes,
               .expert_hits = after.expert_hits - before.expert_hits,
               .expert_misses = after.expert_misses - before.expert_misses};
  return run;
}

}  // namespace doppler
