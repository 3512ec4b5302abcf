// Bad input, through the program: a sentence, an exit code with a meaning, and nothing half-written.
#include <functional>

#include "base/json.h"
#include "support/planted.h"
#include "support/program.h"

namespace doppler {
namespace {

// A copy of the shipped model that a test may spoil.
class Spoilt {
 public:
  Spoilt() { fs::copy(DOPPLER_SOURCE_DIR "/models/tiny", scratch_ / "tiny"); }
  fs::path operator/(const std::string& name) const { return scratch_ / "tiny" / name; }
  void edit_manifest(const std::function<void(Json&)>& edit) const {
    Json manifest = parse_json(slurp(*this / "manifest.json"), "manifest.json");
    edit(manifest);
    spill(*this / "manifest.json", manifest.dump());
  }
  void expect(const std::string& verb, int code, const std::string& words) const {
    expect_outcome(
        verb + " '" + (scratch_ / "tiny").string() + "'" + (verb.starts_with("run") ? " Hello --backend cpu" : ""),
        code, words);
  }

 private:
  Scratch scratch_;
};

TEST(BadInput, ATruncatedShard) {
  const Spoilt model;
  fs::resize_file(model / "shard_00000.bin", 1'000'000);
  model.expect("run", 4, "shard_00000.bin has 1000000 bytes");
  model.expect("inspect", 4, "truncated");
  model.expect("verify", 1, "truncated");
}

TEST(BadInput, AFlippedBitInAShard) {
  const Spoilt model;
  testing::flip_bit(model / "shard_00000.bin", 5000);
  model.expect("verify", 1, "shard_00000.bin has another sha256");
  model.expect("run", 4, "shard_00000.bin): expected sha256 ");
  model.expect("run --no-verify --max-tokens 1", 0, "");
}

TEST(BadInput, AWeightThatIsNoNumber) {
  const Spoilt model;
  testing::plant_nan(model / "", "model.norm.weight");
  model.expect("run", 4, "nan in tensor model.norm.weight, row 0, column 0; final_norm is the first step");
  model.expect("bench inference --backend cpu --prompt-tokens 4 --tokens 2 --runs 1", 4, "in tensor model.norm.weight");
  model.expect("perplexity --backend cpu --ids '" DOPPLER_TEST_DATA "/tiny/val_tokens.npy' --window 8", 4,
               "in tensor model.norm.weight");
}

// Beside a copy of the program, a library with one bit flipped: nothing of it runs.
TEST(BadInput, AnotherWebGpuLibraryThanThePinnedOne) {
  const fs::path library = DOPPLER_BINARY_DIR "/dawn/libwebgpu_wrapper.so";
  if (!fs::exists(library)) GTEST_SKIP() << "Dawn is not here";
  const Scratch scratch;
  fs::copy_file(DOPPLER_BINARY_DIR "/doppler", scratch / "doppler");
  fs::create_directory(scratch / "dawn");
  fs::copy_file(library, scratch / "dawn/libwebgpu_wrapper.so");
  const auto said = [&] {
    return call("--version >/dev/null; '" + (scratch / "doppler").string() +
                "' run '" DOPPLER_SOURCE_DIR "/models/tiny' Hello --backend webgpu --max-tokens 1 2>&1");
  };
  const std::string refused = "is not the library that Doppler comes with (sha256 ";
  EXPECT_EQ(said().out.find(refused), std::string::npos);
  testing::flip_bit(scratch / "dawn/libwebgpu_wrapper.so", 1'000'000);
  const Outcome other = said();
  EXPECT_EQ(other.code, 7) << other.out;
  EXPECT_NE(other.out.find(refused), std::string::npos) << other.out;
}

TEST(BadInput, AManifestThatIsNotJson) {
  const Spoilt model;
  fs::resize_file(model / "manifest.json", 500);
  model.expect("run", 4, "not valid JSON");
  model.expect("verify", 1, "not valid JSON");
}

TEST(BadInput, ATensorPastTheEndOfItsShard) {
  const Spoilt model;
  model.edit_manifest([](Json& manifest) { manifest["tensors"]["model.norm.weight"]["offset"] = 1ull << 40; });
  model.expect("run", 4, "model.norm.weight lies past the end of shard_00000.bin");
  model.expect("verify", 1, "model.norm.weight lies past the end of shard_00000.bin");
}

TEST(BadInput, AConfigThatItsTensorsContradict) {
  const Spoilt model;
  model.edit_manifest([](Json& manifest) { manifest["architecture"]["intermediateSize"] = 33; });
  model.expect("run", 4, "disagree");
  model.expect("verify", 1, "33");
}

TEST(BadInput, AMissingTokenizer) {
  const Spoilt model;
  fs::remove(model / "tokenizer.json");
  model.expect("run", 2, "has no tokenizer");
  model.expect("verify", 1, "the tokenizer tokenizer.json is missing");
  model.expect("tokenize Hello", 3, "tokenizer.json");
}

TEST(BadInput, ATokenizerThatIsNotJson) {
  const Spoilt model;
  fs::resize_file(model / "tokenizer.json", 10'000);
  model.expect("run", 4, "tokenizer.json");
}

TEST(BadInput, APromptLongerThanTheContext) {
  expect_outcome("run --raw 'one two three four five six' --context 3 --backend cpu", 2,
                 "the prompt is longer than the context: expected at most 3 tokens");
}

// A conversion of a test checkpoint with an edited config; whatever it says, nothing may be left of it.
void expect_refused(const std::function<void(Json&)>& edit, int code, const std::string& words) {
  const Scratch scratch;
  fs::copy(DOPPLER_TEST_DATA "/models/gemma3-a", scratch / "source");
  Json config = parse_json(slurp(scratch / "source/config.json"), "config.json");
  edit(config);
  spill(scratch / "source/config.json", config.dump());
  expect_outcome("convert --no-tokenizer '" + (scratch / "source").string() + "' '" + (scratch / "out").string() + "'",
                 code, words);
  EXPECT_EQ(scratch.names().size(), 1u);
}

TEST(BadInput, AnUnknownFamily) {
  expect_refused([](Json& config) { config["architectures"] = {"MambaForCausalLM"}; }, 5, "no family serves");
}

TEST(BadInput, AKeyNobodyKnows) {
  expect_refused([](Json& config) { config["rotate_everything"] = true; }, 5, "rotate_everything");
}

TEST(BadInput, SourceAndDestinationTheSame) {
  const Scratch scratch;
  fs::copy(DOPPLER_TEST_DATA "/models/gemma3-a", scratch / "source");
  const std::string folder = "'" + (scratch / "source").string() + "'";
  expect_outcome("convert --no-tokenizer " + folder + " " + folder, 2, "the same folder");
  expect_outcome("convert --no-tokenizer --force " + folder + " " + folder, 2, "the same folder");
  EXPECT_TRUE(fs::exists(scratch / "source/config.json"));
}

TEST(BadInput, AFileThatCannotGrowDuringAConversion) {
  const Scratch scratch;
  const Outcome outcome = call(
      "convert --no-tokenizer --quant f32 '" DOPPLER_TEST_DATA "/models/gemma3-a' '" + (scratch / "out").string() + "'",
      "", "ulimit -f 200");
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_NE(outcome.err.find("cannot be written"), std::string::npos) << outcome.err;
  EXPECT_EQ(scratch.names().size(), 0u);
}

}  // namespace
}  // namespace doppler
