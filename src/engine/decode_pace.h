// How many tokens a backend may choose by itself before somebody looks: as many as keep a reader from noticing that they
// come in batches.
#pragma once

#include <algorithm>

namespace doppler {

class DecodePace {
 public:
  // fixed: tokens a batch; 0: by what the last ones took.
  explicit DecodePace(int fixed) : fixed_(fixed), batch_(fixed > 0 ? fixed : kFirst) {}

  int batch() const { return batch_; }
  void took(int tokens, double ms) {
    if (fixed_ > 0 || tokens < 1) return;
    const double each = std::max(ms / tokens, 1e-3);
    batch_ = static_cast<int>(std::clamp(kBatchMs / each, 1.0, kMost));
  }

 private:
  static constexpr int kFirst = 4;
  static constexpr double kBatchMs = 50, kMost = 64;
  int fixed_, batch_;
};

}  // namespace doppler
