// Greedy decoding in batches: how many tokens a backend may choose by itself before somebody looks, and a timed run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "model/executor.h"

namespace doppler {

// Tokens of a batch: as many as keep a reader from noticing that they come in batches.
class DecodePace {
 public:
  // fixed: tokens per batch; 0: by the time that the last ones took.
  explicit DecodePace(int fixed) : fixed_(fixed), batch_(fixed > 0 ? fixed : kFirst) {}

  int batch() const { return batch_; }
  void update(int tokens, double ms) {
    if (fixed_ > 0 || tokens < 1) return;
    const double each = std::max(ms / tokens, 1e-3);
    batch_ = static_cast<int>(std::clamp(kBatchMs / each, 1.0, kMax));
  }

 private:
  static constexpr int kFirst = 4;
  static constexpr double kBatchMs = 50, kMax = 64;
  int fixed_, batch_;
};

// What a benchmark measures, in this process and in a browser's page.
struct GreedyRun {
  double first_token_ms = 0;     // of the prompt; 0 without one
  std::vector<double> token_ms;  // one per decoded token
  std::vector<int32_t> ids;      // the prompt's choice, then the decoded ones
  DeviceCounters spent;          // while decoding; bytes: in live buffers at its end
};

// From an empty context: the prompt, then the `tokens` likeliest tokens one after another. An empty prompt decodes from
// `first`. `pace` is kept from run to run.
GreedyRun run_greedy(Executor& executor, std::span<const int32_t> prompt, int32_t first, int tokens, DecodePace& pace);

}  // namespace doppler
