#include "tokenizer/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"

namespace doppler {
namespace {

struct Result {
  std::string shown;
  std::optional<std::string> found;
};

// The rule, over the whole text: the stop string that is complete first, of several the longest.
Result plain(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    Result result;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop) &&
          (!result.found || stop.size() > result.found->size())) {
        result.found = stop;
      }
    }
    if (result.found) {
      result.shown = text.substr(0, end - result.found->size());
      return result;
    }
  }
  return {text, std::nullopt};
}

TEST(StopMatcher, ShowsTheSameHoweverTheTextIsCut) {
  std::mt19937 random(3);
  for (int round = 0; round < 4000; ++round) {
    const auto word = [&](unsigned most) {
      std::string text;
      for (unsigned n = 1 + random() % most; n > 0; --n) text += "abc"[random() % 3];
      return text;
    };
    std::vector<std::string> stops;
    for (unsigned n = random() % 4; n > 0; --n) stops.push_back(word(5));
    const std::string text = word(30);
    const Result expected = plain(stops, text);
    StopMatcher matcher(stops);
    std::string shown;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + random() % 4;
      shown += matcher.push(text.substr(at, length));
      at += length;
      // Nothing of a stop string is ever shown, not even before it is known to be one.
      ASSERT_TRUE(expected.shown.starts_with(shown));
    }
    shown += matcher.finish();
    ASSERT_EQ(shown, expected.shown) << text;
    ASSERT_EQ(matcher.found(), expected.found) << text;
  }
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBeAStop) {
  StopMatcher matcher({"</end>"});
  EXPECT_EQ(matcher.push("text <"), "text ");
  EXPECT_EQ(matcher.push("/e"), "");
  EXPECT_EQ(matcher.push("x</"), "</ex");
  EXPECT_EQ(matcher.push("end> more"), "");
  EXPECT_EQ(matcher.found(), "</end>");
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, WithoutStopsTextPassesThrough) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.push("abc"), "abc");
  EXPECT_EQ(matcher.finish(), "");
  EXPECT_FALSE(matcher.found());
}

TEST(StopMatcher, RefusesAnEmptyStop) { EXPECT_THROW(StopMatcher({"a", ""}), Failure); }

}  // namespace
}  // namespace doppler
