// The tables of docs/debugging.md that say how the words of the JavaScript engine are called here: each line runs.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/files.h"
#include "support/program.h"
#include "support/scratch.h"
#include "support/software_gpu.h"

namespace doppler {
namespace {

struct Line {
  std::string there, command, printed;
};

// What stands between the first pair of backticks, or nothing.
std::string in_backticks(const std::string& cell) {
  const size_t begin = cell.find('`');
  const size_t end = begin == std::string::npos ? begin : cell.find('`', begin + 1);
  return end == std::string::npos ? "" : cell.substr(begin + 1, end - begin - 1);
}

std::vector<Line> lines_of_tables() {
  const std::string text = read_text_file(DOPPLER_SOURCE_DIR "/docs/debugging.md");
  std::vector<Line> lines;
  for (size_t at = text.find("## In the words of"); at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string row = text.substr(at, end - at);
    at = end + 1;
    if (!row.starts_with("| ")) continue;
    std::vector<std::string> cells(1);
    for (size_t i = 2; i < row.size(); ++i) {
      if (row[i] == '\\' && i + 1 < row.size() && row[i + 1] == '|') {
        cells.back() += row[++i];
      } else if (row[i] == '|') {
        cells.emplace_back();
      } else {
        cells.back() += row[i];
      }
    }
    if (cells.size() < 3 || !in_backticks(cells[1]).starts_with("doppler ")) continue;
    lines.push_back({cells[0], in_backticks(cells[1]).substr(8), in_backticks(cells[2])});
  }
  return lines;
}

TEST(Words, EachLineOfTheTablesRunsAndPrintsWhatItSays) {
  testing::choose_gpu_driver();
  unsetenv("DISPLAY");
  unsetenv("WAYLAND_DISPLAY");
  const testing::Scratch scratch;
  const std::vector<Line> lines = lines_of_tables();
  EXPECT_GT(lines.size(), 50u) << "the tables were not found";
  for (const Line& line : lines) {
    std::string command = line.command;
    const auto put = [&](const std::string& word, const std::string& in_its_place) {
      for (size_t at = 0; (at = command.find(word, at)) != std::string::npos; at += in_its_place.size())
        command.replace(at, word.size(), in_its_place);
    };
    put("MODEL", "models/tiny");
    put("/tmp/", scratch.path().string() + "/");  // not another user's files
    const testing::Outcome outcome = testing::call(command);
    EXPECT_EQ(outcome.code, line.printed == "DISPLAY" ? 2 : 0) << command << "\n" << outcome.err;
    EXPECT_FALSE(line.printed.empty()) << command;
    EXPECT_NE((outcome.out + outcome.err).find(line.printed), std::string::npos)
        << command << "\nshould print " << line.printed << "\n"
        << outcome.out.substr(0, 4000) << outcome.err.substr(0, 4000);
  }
}

TEST(Words, WhatNobodyKnowsIsRefusedByItsName) {
  const auto config = [](const std::string& runtime) { return "run Hi --config '{\"runtime\": " + runtime + "}'"; };
  testing::expect_outcome(config(R"({"shared": {"debug": {"tracing": true}}})"), 2, "runtime.shared.debug.tracing");
  testing::expect_outcome(config(R"({"shared": {"debug": {"probes": 3}}})"), 4, "runtime.shared.debug.probes");
  testing::expect_outcome(config(R"({"shared": {"debug": {"logLevel": {"defaultLogLevel": "loud"}}}})"), 4, "loud");
  testing::expect_outcome("debug models/tiny --backend cpu --probe stage=attn_scores", 2, "attn_scores");
  testing::expect_outcome("bench inference --headed --surface native", 2, "--headed is a browser's");
  testing::expect_outcome("run Hi --trace-layers 0,x", 2, "--trace-layers");
}

}  // namespace
}  // namespace doppler
