// --trace-file: what it leaves must be Chrome's trace format, whole or cut off.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/json.h"
#include "support/program.h"

namespace doppler {
namespace {

struct Interval {
  double begin, end;
  std::string name;
};

// Spans of one track must lie inside each other or apart, or a viewer draws nonsense. Times have three places, so ends
// may differ in the last.
void expect_nested(std::vector<Interval> spans) {
  constexpr double kPlace = 0.0021;
  std::sort(spans.begin(), spans.end(), [](const Interval& a, const Interval& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  std::vector<Interval> open;
  for (const Interval& span : spans) {
    while (!open.empty() && open.back().end <= span.begin + kPlace) open.pop_back();
    if (!open.empty()) {
      EXPECT_LE(span.end, open.back().end + kPlace) << span.name << " in " << open.back().name;
    }
    open.push_back(span);
  }
}

// The fields that the format asks for, with their types. How many spans of each category there are.
std::map<std::string, int> check_trace(const Json& trace) {
  std::map<std::string, int> counts;
  std::map<std::pair<int, int>, std::vector<Interval>> tracks;
  EXPECT_TRUE(trace.is_array());
  for (const Json& event : trace) {
    EXPECT_TRUE(event["name"].is_string()) << event.dump();
    EXPECT_TRUE(event["pid"].is_number_integer() && event["tid"].is_number_integer()) << event.dump();
    if (event["ph"] == "M") {
      EXPECT_TRUE(event["args"]["name"].is_string()) << event.dump();
      continue;
    }
    EXPECT_EQ(event["ph"], "X") << event.dump();
    EXPECT_TRUE(event["ts"].is_number() && event["dur"].is_number() && event["args"].is_object()) << event.dump();
    const double begin = event["ts"].get<double>(), length = event["dur"].get<double>();
    EXPECT_GE(begin, 0) << event.dump();
    EXPECT_GE(length, 0) << event.dump();
    tracks[{event["pid"].get<int>(), event["tid"].get<int>()}].push_back(
        {begin, begin + length, event["name"].get<std::string>()});
    ++counts[event["cat"].get<std::string>()];
  }
  for (const auto& [track, spans] : tracks) expect_nested(spans);
  return counts;
}

std::map<std::string, int> traced(const std::string& verb, const std::string& before = "true") {
  const Scratch scratch;
  const Outcome outcome = call(verb + " --trace-file " + (scratch / "t.json").string(), "", before);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return check_trace(parse_json(testing::slurp(scratch / "t.json"), "trace"));
}

TEST(TraceFile, HoldsEveryTokenLayerAndStep) {
  // Of 7 tokens one pass, and one for each of the next 4, the last of which nobody runs.
  auto counts = traced("run models/tiny --raw 'The color of the sky is' --max-tokens 5 --backend cpu --speculate off");
  EXPECT_EQ(counts["token"], 5);
  EXPECT_EQ(counts["layer"], 5 * 8);
  EXPECT_GE(counts["step"], 5 * 8 * 4) << "more than a step for attention, and for what comes before and after";
  EXPECT_EQ(counts["load"], 2);
}

TEST(TraceFile, IsWrittenInEveryVerbThatRunsAModel) {
  for (const char* verb : {"debug models/tiny --backend cpu", "debug models/tiny --backend ref",
                           "bench inference models/tiny --backend cpu --prompt-tokens 8 --tokens 4 --runs 1",
                           "perplexity models/tiny --ids tests/data/tiny/val_tokens.npy --window 512 --backend cpu"}) {
    auto counts = traced(verb);
    EXPECT_GE(counts["token"], 1) << verb;
    EXPECT_GE(counts["step"], 8) << verb;
  }
}

TEST(TraceFile, HoldsTheDispatchesOfAGpu) {
  const std::string driver = "/usr/lib/chromium/vk_swiftshader_icd.json";
  if (!std::filesystem::exists(driver)) GTEST_SKIP() << "there is no SwiftShader here";
  auto counts = traced("run models/tiny --raw 'The color of the sky is' --max-tokens 5 --backend webgpu --no-self-test",
                       "export VK_ICD_FILENAMES=" + driver);
  EXPECT_EQ(counts["token"], 1 + 1 + 4) << "the prompt, four at once, and each of them";
  EXPECT_GE(counts["dispatch"], 8 * 4);
  EXPECT_GE(counts["load"], 5) << "kernels are compiled";
}

TEST(TraceFile, OfAServerThatWasStopped) {
  const Scratch scratch;
  const std::string path = (scratch / "t.json").string(), log = (scratch / "log").string();
  const std::string program = DOPPLER_BINARY_DIR "/doppler";
  const std::string script = program + " serve models/tiny --backend cpu --port 0 --trace-file " + path + " >" + log +
                             " 2>&1 & server=$!; for i in $(seq 300); do url=$(grep -o 'http://127[^ ]*' " + log +
                             " | head -1); [ -n \"$url\" ] && break; sleep 0.1; done; " + program +
                             " bench serve $url --requests 2 --clients 1 --prompt-tokens 8 --tokens 8 >" +
                             (scratch / "bench").string() + " 2>&1; kill -INT $server; wait $server";
  call("--version", "", "{ " + script + "; true; }");
  auto counts = check_trace(parse_json(testing::slurp(path), "trace"));
  EXPECT_GE(counts["token"], 2 * 8) << testing::slurp(log) << testing::slurp(scratch / "bench");
}

// Nothing is lost but the last bracket, which the format does not ask for.
TEST(TraceFile, OfAProgramThatWasKilledLacksOnlyTheBracket) {
  const Scratch scratch;
  const std::string path = (scratch / "t.json").string();
  const std::string run = std::string(DOPPLER_BINARY_DIR "/doppler") +
                          " perplexity models/tiny --ids tests/data/tiny/val_tokens.npy --backend ref --trace-file " +
                          path;
  call("--version", "", "{ " + run + " & sleep 2; kill -KILL $!; wait $!; true; }");
  const std::string text = testing::slurp(path);
  ASSERT_FALSE(text.empty());
  ASSERT_NE(text.back(), '\n') << "it ended by itself";
  auto counts = check_trace(parse_json(text + "]", "trace"));
  EXPECT_EQ(counts["load"], 2);
}

TEST(TraceFile, ThatCannotBeWrittenIsAnError) {
  testing::expect_outcome("run hello --backend cpu --trace-file /nowhere/t.json", 3, "/nowhere/t.json");
}

}  // namespace
}  // namespace doppler
