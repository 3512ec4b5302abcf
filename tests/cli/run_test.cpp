// The program as a person calls it: what it prints, and how it ends.
#include <sstream>

#include "base/json.h"
#include "support/program.h"

namespace doppler {
namespace {

TEST(Run, ContinuesARawPrompt) {
  const Outcome outcome = call("run --raw 'The color of the sky is' --max-tokens 2 --backend cpu");
  EXPECT_EQ(outcome.out, " blue.\n");
  // Which backend runs is said even where nobody watches a terminal, apart from the text.
  EXPECT_EQ(outcome.err.rfind("[tiny on cpu: ", 0), 0u) << outcome.err;
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

TEST(Run, ReadsThePromptFromAFileOrAPipe) {
  const testing::Scratch scratch;
  testing::spill(scratch / "prompt", "What color is the sky?");
  const std::string arguments = "run --backend cpu --prompt-file ", answer = "The color of the sky is blue.\n";
  EXPECT_EQ(call(arguments + (scratch / "prompt").string()).out, answer);
  EXPECT_EQ(call(arguments + "-", "What color is the sky?").out, answer);
}

TEST(Run, StopsBeforeAStopText) {
  EXPECT_EQ(call("run 'What color is the sky?' --backend cpu --stop blue --stop never").out,
            "The color of the sky is \n");
}

TEST(Run, TokenIdsLeaveTheModelAlone) {
  EXPECT_EQ(call("run --prompt-ids 2,513,665,442,365,992,418 models/tiny --max-tokens 2 --backend cpu").out,
            " blue.\n");
}

TEST(Run, ChatsOverStandardInput) {
  const Outcome outcome = call("run --chat --backend cpu --prompt 'What color is the sky?'");
  EXPECT_EQ(outcome.out, "The color of the sky is blue.\n");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(call("run --chat --backend cpu", "What color is the sky?\n\nWhat color is the sky?\n").out,
            "The color of the sky is blue.\nThe color of the sky is blue.\n");
}

TEST(Run, ChatsInCommandsAndSeveralLinesWithoutATerminal) {
  const testing::Scratch scratch;
  const std::string file = (scratch / "talk.json").string(), chat = "run --chat --backend cpu --max-tokens 20";
  const Outcome outcome =
      call(chat, "/system Be kind.\n\"\"\"What color\nis the sky?\"\"\"\n/save " + file + "\n/stats\n");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find("doppler"), std::string::npos) << outcome.out;  // only answers
  EXPECT_NE(outcome.err.find("1 turn and a system prompt"), std::string::npos) << outcome.err;
  const Json talk = parse_json(read_text_file(file), "talk.json");
  EXPECT_EQ(talk["messages"][1]["content"], "What color\nis the sky?");
  EXPECT_EQ(talk["messages"][2]["content"].get<std::string>() + "\n", outcome.out);
  for (const char byte : {'\r', '\033'}) EXPECT_EQ((outcome.out + outcome.err).find(byte), std::string::npos);
  EXPECT_EQ(call("tokenize models/tiny --chat " + file).code, 0);
}

TEST(Run, WithoutATerminalAnErrorEndsTheChat) {
  const auto fails = [](const std::string& arguments, const std::string& input, const std::string& words) {
    const Outcome outcome = call("run --chat --backend cpu --max-tokens 8 " + arguments, input);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.err;
  };
  fails("", "/clea\nhello\n", "Did you mean /clear?");
  fails("", "\"\"\"What color\n", "has no end");
  std::string questions;
  for (int i = 0; i < 9; ++i) questions += "What color is the sky?\n";
  fails("--context 50", questions, "the prompt is longer than the context");
}

TEST(Run, BadUsageIsMetWithASentence) {
  expect_outcome("run", 2, "there is no prompt");
  expect_outcome("run a --prompt b", 2, "more than once");
  expect_outcome("run x --backend abacus", 2, "unknown backend");
  expect_outcome("run x --temperature -1", 2, "temperature");
  expect_outcome("run x --context -5", 2, "--context");
  expect_outcome("run x --threads 100000", 2, "--threads");
  expect_outcome("run x --chat --raw", 2, "--chat and --raw");
  expect_outcome("run --chat --prompt-ids 2,3", 2, "--chat and --prompt-ids");
  expect_outcome("run x --raw --system y", 2, "--system and --raw");
  expect_outcome("run /nowhere x", 3, "/nowhere");
  expect_outcome("run --prompt-ids 99999 --backend cpu", 2, "outside the model's vocabulary");
  expect_outcome("walk", 2, "walk");
  expect_outcome("bench inference --runs 0", 2, "at least one");
}

TEST(Cli, OutputThatCannotBeWrittenIsAnError) {
  EXPECT_EQ(call("run x --backend cpu --max-tokens 2 >/dev/full").code, 3);
  EXPECT_EQ(call("inspect >/dev/full").code, 3);
}

// 8 layers, one kv head of 128, keys and values of 2 bytes; seven layers keep no more than their window.
TEST(Cli, InspectTellsWhatATokenTakesOfTheCache) {
  EXPECT_NE(call("inspect").out.find("4.10 kB of keys and values per token, 512 B past the windows"),
            std::string::npos);
}

// The verbs that `doppler VERB --help` lists under "Subcommands", and theirs, down to those that have none.
std::vector<std::string> verbs_below(const std::string& verb) {
  const std::string help = call(verb + " --help").out, title = "\nSubcommands:\n";
  const size_t at = help.find(title);
  if (at == std::string::npos) return {verb};
  std::vector<std::string> found;
  std::istringstream lines(help.substr(at + title.size()));
  for (std::string line; std::getline(lines, line) && line.rfind("  ", 0) == 0;) {
    if (line[2] == ' ') continue;  // the rest of a long description
    const std::string name = line.substr(2, line.find(' ', 2) - 2);
    for (std::string& below : verbs_below(verb.empty() ? name : verb + " " + name)) found.push_back(std::move(below));
  }
  return found;
}

TEST(Cli, EveryVerbHasHelpWithAnExample) {
  const std::vector<std::string> verbs = verbs_below("");
  EXPECT_GE(verbs.size(), 15u);  // the parsing of --help finds them at all
  for (const std::string& verb : verbs) {
    const Outcome outcome = call(verb + " --help");
    EXPECT_EQ(outcome.code, 0) << verb;
    EXPECT_NE(outcome.out.find("\nExample"), std::string::npos) << verb << "\n" << outcome.out;
  }
}

TEST(Cli, TheProgramAndTheNpmPackageHaveOneVersion) {
  const Json package = parse_json(read_text_file(DOPPLER_SOURCE_DIR "/web/package.json"), "package.json");
  EXPECT_EQ(call("--version").out, "doppler " + package["version"].get<std::string>() + "\n");
}

TEST(Verify, FindsNothingInTheShippedModel) { expect_outcome("verify models/tiny", 0, "is sound"); }

}  // namespace
}  // namespace doppler
