// GGUF files as a person meets them.
#include <gmock/gmock.h>

#include "support/program.h"

namespace doppler {
namespace {

using ::testing::HasSubstr;

TEST(Gguf, GoesOutRunsAndComesBack) {
  testing::Scratch scratch;
  const std::string file = (scratch / "tiny.gguf").string(), back = (scratch / "back").string();
  Outcome outcome = call("convert models/tiny " + file);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(call("run " + file + " 'What color is the sky?' --backend cpu").out, "The color of the sky is blue.\n");
  EXPECT_THAT(call("bench inference " + file + " --tokens 2 --prompt-tokens 4 --runs 1 --backend cpu").out,
              HasSubstr("tiny GGUF Q4_K on cpu"));
  EXPECT_THAT(call("inspect " + file).out, HasSubstr("tensors and a GGUF file"));
  EXPECT_THAT(call("verify " + file).out, HasSubstr("of weights are finite numbers"));
  outcome = call("convert " + file + " " + back);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(call("verify " + back).code, 0);
  EXPECT_EQ(call("run " + back + " 'What color is the sky?' --backend cpu").out, "The color of the sky is blue.\n");
}

TEST(Checkpoint, IsTakenAsItIs) {
  const std::string folder = "tests/data/models/llama-a";
  const Outcome outcome = call("run " + folder + " --prompt-ids 5,6,7 --max-tokens 2 --backend cpu");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("run as it is"));
  EXPECT_THAT(call("inspect " + folder).out, HasSubstr("tensors and a Hugging Face folder"));
  EXPECT_THAT(call("verify " + folder).out, HasSubstr("is sound"));
  EXPECT_EQ(call("bench inference " + folder + " --tokens 2 --prompt-tokens 4 --runs 1 --backend cpu").code, 0);
  // A weight that is no number: the file's last two bytes, a BF16 or half of an F32, become ones.
  testing::Scratch scratch;
  std::filesystem::copy(DOPPLER_SOURCE_DIR "/" + folder, scratch / "m");
  std::string bytes = read_text_file(scratch / "m" / "model.safetensors");
  bytes.replace(bytes.size() - 2, 2, "\xff\x7f");
  testing::spill(scratch / "m" / "model.safetensors", bytes);
  const Outcome faulty = call("verify " + (scratch / "m").string());
  EXPECT_THAT(faulty.out + faulty.err, HasSubstr("not a finite number"));
  EXPECT_NE(faulty.code, 0);
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
