#include "tokenizer/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace doppler {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& text : stops) {
    if (text.empty()) fail({.code = ErrorCode::kUsage, .what = "a stop string is empty", .todo = "Leave it out"});
    Stop stop{std::move(text), {}, 0};
    stop.fallback.assign(stop.text.size() + 1, 0);
    for (size_t length = 2, same = 0; length <= stop.text.size(); ++length) {
      while (same > 0 && stop.text[length - 1] != stop.text[same]) same = stop.fallback[same];
      if (stop.text[length - 1] == stop.text[same]) ++same;
      stop.fallback[length] = same;
    }
    stops_.push_back(std::move(stop));
  }
}

std::string StopMatcher::push(std::string_view text) {
  if (found_) return {};
  for (const char c : text) {
    held_ += c;
    for (Stop& stop : stops_) {
      while (stop.matched > 0 && stop.text[stop.matched] != c) stop.matched = stop.fallback[stop.matched];
      if (stop.text[stop.matched] == c) ++stop.matched;
      if (stop.matched == stop.text.size() && (!found_ || stop.text.size() > found_->size())) found_ = stop.text;
    }
    if (found_) {
      held_.resize(held_.size() - found_->size());
      return std::exchange(held_, {});
    }
  }
  size_t keep = 0;
  for (const Stop& stop : stops_) keep = std::max(keep, stop.matched);
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return shown;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace doppler
