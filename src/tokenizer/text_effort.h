// What encoding one text may take, and whether it is still wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/error.h"

namespace doppler {

class TextEffort {
 public:
  // `cancelled` is asked now and then, from the thread that encodes, until it says true.
  explicit TextEffort(size_t text_bytes, std::function<bool()> cancelled = {})
      : limit_(1'000'000 + 512 * static_cast<uint64_t>(text_bytes)), cancelled_(std::move(cancelled)) {}

  // A step tries one part of a regular expression or passes one byte. Honest expressions need a few for each byte.
  // Only what is not bounded otherwise is counted. False when the text's steps are spent.
  bool spend(uint64_t steps) { return (spent_ += steps) <= limit_; }
  uint64_t limit() const { return limit_; }

  bool cancelled() { return left_ = left_ || (cancelled_ && cancelled_()); }
  void check() {
    if (cancelled()) fail({.code = ErrorCode::kUsage, .what = "encoding the text was interrupted"});
  }
  // check(), often enough to be called for every piece of text.
  void tick() {
    if (++ticks_ % 256 == 0) check();
  }

 private:
  uint64_t limit_, spent_ = 0;
  uint32_t ticks_ = 0;
  bool left_ = false;
  std::function<bool()> cancelled_;
};

}  // namespace doppler
