// The table of --watch.
#include "serve/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace doppler::serve {
namespace {

EngineGauges at(uint64_t generated, size_t tokens) {
  EngineGauges gauges{.running = 1, .waiting = 2, .pages = 40, .held_pages = 10, .page_tokens = 16};
  gauges.cache_tokens = 640;
  gauges.generated = generated;
  gauges.requests = {
      {.number = 7, .model = "tiny", .client = "10.0.0.7", .prompt = 12, .tokens = tokens, .seconds = 3}};
  return gauges;
}

TEST(Watch, TheTableSaysWhatRunsAndHowFast) {
  const std::string table = watch_table(at(100, 4), at(160, 24), 2, 24, 100);
  EXPECT_THAT(table, testing::StartsWith("1 running, 2 waiting   cache 25 % of 640 tokens   30.0 tok/s\n"));
  EXPECT_THAT(table, testing::ContainsRegex("7  tiny +10.0.0.7 +12 +24 +3.0 +10.0\n"));
}

TEST(Watch, TheTableFitsTheTerminal) {
  EngineGauges now = at(0, 0);
  now.requests.resize(100, now.requests.front());
  const std::string table = watch_table({}, now, 1, 10, 20);
  EXPECT_LT(std::count(table.begin(), table.end(), '\n'), 11);
  EXPECT_THAT(table, testing::HasSubstr("93 more"));
  size_t begin = 0;
  for (size_t end = 0; (end = table.find('\n', begin)) != std::string::npos; begin = end + 1)
    EXPECT_LE(end - begin, 20u);
}

TEST(Watch, ItIsDrawnOverItself) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::string seen;
  {
    const Watch watch(
        ends[1], [] { return at(1, 1); }, std::chrono::milliseconds(1));
    char bytes[4096];
    while (seen.find("\x1b[3A\x1b[J1 running") == std::string::npos) {
      const ssize_t got = ::read(ends[0], bytes, sizeof bytes);
      ASSERT_GT(got, 0);
      seen.append(bytes, static_cast<size_t>(got));
    }
  }
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace doppler::serve
