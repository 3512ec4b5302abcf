// GGUF files as a person meets them.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>

#include "support/scratch.h"

namespace doppler {
namespace {

using ::testing::HasSubstr;

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

TEST(Gguf, GoesOutRunsAndComesBack) {
  testing::Scratch scratch;
  const std::string file = (scratch / "tiny.gguf").string(), back = (scratch / "back").string();
  Outcome outcome = call("convert models/tiny " + file);
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_EQ(call("run " + file + " 'What color is the sky?' --backend cpu").out, "The color of the sky is blue.\n");
  EXPECT_THAT(call("bench inference " + file + " --tokens 2 --prompt-tokens 4 --runs 1 --backend cpu").out,
              HasSubstr("tiny GGUF Q4_K on cpu"));
  EXPECT_THAT(call("inspect " + file).out, HasSubstr("this is a GGUF file"));
  outcome = call("convert " + file + " " + back);
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_EQ(call("verify " + back).code, 0);
  EXPECT_EQ(call("run " + back + " 'What color is the sky?' --backend cpu").out, "The color of the sky is blue.\n");
}

TEST(Gguf, BadOnesAreMetWithASentence) {
  testing::Scratch scratch;
  const std::string file = (scratch / "m.gguf").string();
  testing::spill(scratch / "m.gguf", std::string("GGUF\3\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0", 24));
  for (const std::string& verb : {"run " + file + " hello", "convert " + file + " " + (scratch / "out").string()}) {
    const Outcome outcome = call(verb);
    EXPECT_EQ(outcome.code, 4) << outcome.out;
    EXPECT_THAT(outcome.out, HasSubstr("tensors is more than the file can hold"));
  }
  EXPECT_EQ(call("convert models/tiny " + file + " --quant q4_k").code, 2) << "something is there";
  EXPECT_THAT(call("convert models/tiny " + (scratch / "n.gguf").string() + " --quant q9").out,
              HasSubstr("an unknown mix of types for GGUF"));
  EXPECT_THAT(call("convert models/tiny " + (scratch / "n.gguf").string() + " --quant q9").out, HasSubstr("q4_k_m"));
}

}  // namespace
}  // namespace doppler
