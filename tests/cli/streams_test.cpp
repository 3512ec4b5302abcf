// What the program prints: where it cannot be written, and where a model's names would speak to the terminal.
#include "support/program.h"

namespace doppler {
namespace {

TEST(Streams, AnErrorThatCannotBeSaidHasItsExitCode) {
  EXPECT_EQ(call("walk 2>/dev/full").code, 2);
  EXPECT_EQ(call("run --context -5 x 2>/dev/full").code, 2);
  EXPECT_EQ(call("inspect /nowhere 2>/dev/full").code, 3);
  EXPECT_EQ(call("inspect /nowhere 2>&-").code, 3);
}

TEST(Streams, WorkGoesOnWhereNothingCanBeSaid) {
  const Outcome outcome =
      call("run --raw 'The color of the sky is' --max-tokens 2 --backend cpu --log verbose 2>/dev/full");
  EXPECT_EQ(outcome.out, " blue.\n");
  EXPECT_EQ(outcome.code, 0);
}

TEST(Streams, MuchOutputThatCannotBeWrittenIsAnErrorOfTheFile) {
  for (const char* arguments : {"inspect --tensors --plan", "inspect --tensors --json", "--help", "run --help"}) {
    const Outcome outcome = call(std::string(arguments) + " >/dev/full");
    EXPECT_EQ(outcome.code, 3) << arguments << "\n" << outcome.err;
    EXPECT_EQ(outcome.err, "doppler: the output could not be written. See whether the disk is full\n") << arguments;
  }
  EXPECT_EQ(call("inspect --tensors --plan >/dev/full 2>/dev/full").code, 3);
}

TEST(Streams, AModelsNamesDoNotSpeakToTheTerminal) {
  const testing::Scratch scratch;
  const fs::path model = scratch / "model";
  fs::copy(DOPPLER_SOURCE_DIR "/models/tiny", model);
  std::string manifest = testing::slurp(model / "manifest.json");
  const auto replace = [&](const std::string& from, const std::string& to) {
    const size_t at = manifest.find(from);
    ASSERT_NE(at, std::string::npos);
    manifest.replace(at, from.size(), to);
  };
  replace("\"modelId\": \"tiny\"", R"("modelId": "ti\u001b[31mny\u009b2J\ndoppler: fine")");
  replace("\"quantization\": \"Q4_K_M\"", R"("quantization": "Q4\u001b]0;title\u0007")");
  testing::spill(model / "manifest.json", manifest);
  for (const std::string verb :
       {"inspect {}", "inspect {} --tensors", "run {} hello --backend cpu --max-tokens 1 --log verbose",
        "debug {} --prompt hello --backend cpu --log verbose", "verify {}", "run --chat {} --backend cpu",
        "bench inference {} --backend cpu --prompt-tokens 2 --tokens 2 --runs 1"}) {
    std::string arguments = verb;
    arguments.replace(verb.find("{}"), 2, "'" + model.string() + "'");
    const Outcome outcome = call(arguments, "hello\n/stats\n");
    EXPECT_EQ(outcome.code, 0) << arguments << outcome.err;
    const std::string said = outcome.out + outcome.err;
    for (const char* bad : {"\033", "\xC2\x9B", "\a", "\ndoppler: fine"})
      EXPECT_EQ(said.find(bad), std::string::npos) << arguments << "\n" << said;
    if (verb.rfind("inspect", 0) == 0) {
      EXPECT_NE(said.find("ti\\x1b[31mny\\x9b2J\\ndoppler: fine"), std::string::npos) << said;
    }
  }
  expect_outcome("inspect \"$(printf '/no\\033[31mwhere')\"", 3, "/no\\x1b[31mwhere");
}

}  // namespace
}  // namespace doppler
