// Watches streamed text for stop strings. Text that may be the beginning of one is held back until that is decided, so
// no part of a stop string is ever shown.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace doppler {

class StopMatcher {
 public:
  // No stop string may be empty. With none at all, text just passes through.
  explicit StopMatcher(std::vector<std::string> stops);

  // The text that can be shown now. How the text is cut into calls makes no difference to what is shown in all.
  std::string push(std::string_view text);
  // What was held back when the text ends without a stop string.
  std::string finish();

  // The stop string that was found: the one that is complete first, of several complete at once the longest. Text
  // after it is dropped.
  const std::optional<std::string>& found() const { return found_; }

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> fallback;  // for each length matched: the longest shorter beginning that ends the same way
    size_t matched = 0;            // bytes of `text` that the stream ends with
  };
  std::vector<Stop> stops_;
  std::string held_;
  std::optional<std::string> found_;
};

}  // namespace doppler
