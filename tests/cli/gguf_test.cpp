// GGUF files as a person meets them.
#include <gmock/gmock.h>

#include "support/program.h"

namespace doppler {
namespace {

using ::testing::HasSubstr;
using testing::call;
using testing::Outcome;

TEST(Gguf, GoesOutRunsAndComesBack) {
  testing::Scratch scratch;
  const std::string file = (scratch / "tiny.gguf").string(), back = (scratch / "back").string();
  Outcome outcome = call("convert models/tiny " + file);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(call("run " + file + " 'What color is the sky?' --backend cpu").out, "The color of the sky is blue.\n");
  EXPECT_THAT(call("bench inference " + file + " --tokens 2 --prompt-tokens 4 --runs 1 --backend cpu").out,
              HasSubstr("tiny GGUF Q4_K on cpu"));
  EXPECT_THAT(call("inspect " + file).err, HasSubstr("this is a GGUF file"));
  outcome = call("convert " + file + " " + back);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(call("verify " + back).code, 0);
  EXPECT_EQ(call("run " + back + " 'What color is the sky?' --backend cpu").out, "The color of the sky is blue.\n");
}

TEST(Gguf, BadOnesAreMetWithASentence) {
  testing::Scratch scratch;
  const std::string file = (scratch / "m.gguf").string();
  testing::spill(scratch / "m.gguf", std::string("GGUF\3\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0", 24));
  for (const std::string& verb : {"run " + file + " hello", "convert " + file + " " + (scratch / "out").string()}) {
    const Outcome outcome = call(verb);
    EXPECT_EQ(outcome.code, 4) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("tensors is more than the file can hold"));
  }
  EXPECT_EQ(call("convert models/tiny " + file + " --quant q4_k").code, 2) << "something is there";
  EXPECT_THAT(call("convert models/tiny " + (scratch / "n.gguf").string() + " --quant q9").err,
              HasSubstr("an unknown mix of types for GGUF"));
  EXPECT_THAT(call("convert models/tiny " + (scratch / "n.gguf").string() + " --quant q9").err, HasSubstr("q4_k_m"));
}

}  // namespace
}  // namespace doppler
