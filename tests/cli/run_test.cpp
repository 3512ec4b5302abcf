// The program as a person calls it: what it prints, and how it ends.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>

#include "base/json.h"
#include "support/scratch.h"

namespace doppler {
namespace {

struct Outcome {
  int code = -1;
  std::string out;  // standard output and error together
};

Outcome call(const std::string& arguments) {
  const std::string command =
      "cd " DOPPLER_SOURCE_DIR " && " DOPPLER_BINARY_DIR "/doppler " + arguments + " 2>&1 </dev/null";
  FILE* pipe = popen(command.c_str(), "r");
  Outcome outcome;
  std::array<char, 4096> buffer;
  for (size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) outcome.out.append(buffer.data(), n);
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

TEST(Run, ContinuesARawPrompt) {
  const Outcome outcome = call("run --raw 'The color of the sky is' --max-tokens 2 --backend cpu");
  EXPECT_EQ(outcome.out, " blue.\n");
  EXPECT_EQ(outcome.code, 0);
}

TEST(Run, ASingleWordIsTheModelIfItExists) {
  EXPECT_EQ(call("run models/tiny --prompt 'What color is the sky?' --backend cpu").out,
            "The color of the sky is blue.\n");
  EXPECT_EQ(call("run 'What color is the sky?' --backend cpu").out, "The color of the sky is blue.\n");
  EXPECT_EQ(call("run models/tiny 'What color is the sky?' --backend cpu").out, "The color of the sky is blue.\n");
}

TEST(Run, PrintsOneJsonObject) {
  const Outcome outcome = call("run --prompt-ids 2,513,665,442,365,992,418 --max-tokens 3 --backend cpu --json");
  const Json result = parse_json(outcome.out, "output");
  EXPECT_EQ(result["prompt_token_ids"].size(), 7u);
  EXPECT_EQ(result["token_ids"].size(), 3u);
  EXPECT_EQ(result["text"].get<std::string>().substr(0, 6), " blue.");
  EXPECT_EQ(result["stop_reason"], "max_tokens");
  EXPECT_EQ(result["backend"], "cpu");
  for (const char* key : {"load_ms", "prefill_ms", "first_token_ms", "decode_ms", "prefill_tok_s", "decode_tok_s"}) {
    EXPECT_GT(result["timing"][key].get<double>(), 0) << key;
  }
}

TEST(Run, TheSameSeedGivesTheSameText) {
  const std::string arguments = "run --raw 'Once upon a time' --temperature 1 --max-tokens 30 --backend cpu --seed ";
  EXPECT_EQ(call(arguments + "5").out, call(arguments + "5 --threads 1").out);
  EXPECT_NE(call(arguments + "5").out, call(arguments + "6").out);
}

TEST(Run, ChatsOverStandardInput) {
  const Outcome outcome = call("run --chat --backend cpu --prompt 'What color is the sky?'");
  EXPECT_EQ(outcome.out, "The color of the sky is blue.\n");
  EXPECT_EQ(outcome.code, 0);
}

TEST(Run, BadUsageIsMetWithASentence) {
  const auto expect = [](const std::string& arguments, int code, const std::string& words) {
    const Outcome outcome = call(arguments);
    EXPECT_EQ(outcome.code, code) << arguments << "\n" << outcome.out;
    EXPECT_NE(outcome.out.find(words), std::string::npos) << outcome.out;
  };
  expect("run", 2, "there is no prompt");
  expect("run a --prompt b", 2, "more than once");
  expect("run x --backend abacus", 2, "unknown backend");
  expect("run x --temperature -1", 2, "temperature");
  expect("run /nowhere x", 3, "/nowhere");
  expect("run --raw 'one two three four five six' --context 3 --backend cpu", 2, "longer than the context");
  expect("run --prompt-ids 99999 --backend cpu", 2, "outside the model's vocabulary");
  expect("walk", 2, "walk");
  expect("bench inference --runs 0", 2, "at least one");
}

TEST(Cli, EveryVerbHasHelpWithAnExample) {
  for (const char* verb : {"run", "convert", "inspect", "verify", "synth", "tokenize", "devices", "bench inference",
                           "bench kernels", "test correctness"}) {
    const Outcome outcome = call(std::string(verb) + " --help");
    EXPECT_EQ(outcome.code, 0) << verb;
    EXPECT_NE(outcome.out.find("xample"), std::string::npos) << verb << "\n" << outcome.out;
  }
}

TEST(Verify, FindsNothingInTheShippedModelAndADamagedBitInACopy) {
  EXPECT_EQ(call("verify models/tiny").code, 0);
  testing::Scratch scratch;
  std::filesystem::copy(DOPPLER_SOURCE_DIR "/models/tiny", scratch / "tiny");
  testing::flip_bit(scratch / "tiny/shard_00000.bin", 5000);
  const Outcome outcome = call("verify " + (scratch / "tiny").string());
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.out.find("shard_00000.bin"), std::string::npos) << outcome.out;
}

}  // namespace
}  // namespace doppler
