#include "convert/synth.h"

#include <gmock/gmock.h>

#include <cmath>

#include "convert/synth_blocks.h"
#include "format/decode.h"
#include "model/weights.h"
#include "support/scratch.h"

namespace doppler {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

const DType kTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ8_0,
                        DType::kQ4_K, DType::kQ6_K, DType::kMXFP4};

// A small model of a real architecture: its preset with fewer and narrower layers.
struct SmallPreset {
  explicit SmallPreset(const std::string& name) : preset(preset_named(name)), config(*preset.config) {
    config["hidden_size"] = 320;
    config["intermediate_size"] = 416;
    config["num_hidden_layers"] = 4;
    config["vocab_size"] = 1000;
    config["bos_token_id"] = 2;
    config["eos_token_id"] = 1;
    if (config.contains("num_kv_shared_layers")) {  // fewer than there are, after one of each kind
      config["num_kv_shared_layers"] = 2;
      config["sliding_window_pattern"] = 2;
    }
    preset.config = &config;
  }
  Preset preset;
  Json config;
};

SynthOptions with(const char* recipe, int threads = 2) {
  SynthOptions options;
  options.recipe = recipe_named(recipe);
  options.threads = threads;
  options.id = "same";
  return options;
}

TEST(SynthBlocks, DecodedWeightsAreBellShapedWithTheAskedDeviation) {
  for (const DType type : kTypes) {
    for (const size_t cols : {1152u, 6912u, 96u, 31u}) {
      const float deviation = 1 / std::sqrt(static_cast<float>(cols));
      std::vector<std::byte> bytes(row_bytes(type, cols));
      std::vector<float> values(cols);
      double sum = 0, squares = 0, fourth = 0, largest = 0;
      const size_t rows = 400'000 / cols;
      for (size_t r = 0; r < rows; ++r) {
        synth_row(type, 7, r, deviation, bytes.data(), cols);
        decode_row(type, bytes.data(), values.data(), cols);
        for (const float v : values) {
          ASSERT_TRUE(std::isfinite(v));
          const double z = static_cast<double>(v) / deviation;
          sum += z;
          squares += z * z;
          fourth += z * z * z * z;
          largest = std::max(largest, std::abs(z));
        }
      }
      const auto n = static_cast<double>(rows * cols);
      EXPECT_NEAR(sum / n, 0, 0.02) << name_of(type) << " " << cols;
      EXPECT_NEAR(std::sqrt(squares / n), 1, 0.02) << name_of(type) << " " << cols;
      const double kurtosis = fourth / n / (squares / n * squares / n);
      EXPECT_TRUE(kurtosis > 2.5 && kurtosis < (type == DType::kMXFP4 ? 6 : 4))
          << name_of(type) << " " << kurtosis;  // a bell has 3, a box 1.8; power-of-two scales spread it
      EXPECT_LT(largest, 7) << name_of(type);
    }
  }
}

TEST(SynthBlocks, PaddingIsZeroOrAlmost) {
  for (const DType type : {DType::kQ8_0, DType::kQ4_K, DType::kQ6_K, DType::kMXFP4}) {
    for (const size_t cols : {1u, 33u, 100u, 300u}) {
      std::vector<std::byte> bytes(row_bytes(type, cols));
      synth_row(type, 3, 5, 1, bytes.data(), cols);
      const auto width = static_cast<size_t>(info(type).block_weights);
      std::vector<float> values((cols + width - 1) / width * width);
      decode_row(type, bytes.data(), values.data(), values.size());
      for (size_t i = cols; i < values.size(); ++i) EXPECT_LT(std::abs(values[i]), 0.25) << name_of(type) << " " << i;
    }
  }
}

TEST(SynthBlocks, RowsAndStreamsDiffer) {
  EXPECT_NE(stream_key(0, "a", 1), stream_key(0, "b", 1));
  EXPECT_NE(stream_key(0, "a", 1), stream_key(1, "a", 1));
  std::vector<std::byte> a(row_bytes(DType::kQ4_K, 256)), b(a.size());
  synth_row(DType::kQ4_K, 1, 0, 1, a.data(), 256);
  synth_row(DType::kQ4_K, 1, 1, 1, b.data(), 256);
  EXPECT_NE(a, b);
}

TEST(Synth, EveryArchitectureGivesAnArtefactThatAgreesWithItsConfig) {
  for (const Preset& known : presets()) {
    const SmallPreset small(known.name);
    for (const char* recipe : {"q4_k_m", "f16"}) {
      Scratch scratch;
      synth(small.preset, scratch / "out", with(recipe));
      EXPECT_THAT(RdrrReader::verify(scratch / "out"), IsEmpty());
      const RdrrReader reader = RdrrReader::open(scratch / "out");
      EXPECT_EQ(reader.manifest()["metadata"]["synthetic"], true);
      Weights weights;
      for (const RdrrTensorEntry& entry : reader.entries()) weights.add(entry.slot, reader.tensor(entry));
      const ModelConfig config = read_model_config(reader.manifest(), "manifest.json");
      EXPECT_THAT(weight_faults(build_plan(config), weights), IsEmpty()) << known.name;
    }
  }
}

TEST(Synth, TheSameSeedGivesTheSameBytesWhateverTheThreads) {
  const SmallPreset small("gemma-3-1b");
  Scratch scratch;
  synth(small.preset, scratch / "a", with("q4_k_m", 1));
  synth(small.preset, scratch / "b", with("q4_k_m", 3));
  SynthOptions other = with("q4_k_m");
  other.seed = 1;
  synth(small.preset, scratch / "c", other);
  EXPECT_EQ(slurp(scratch / "a" / "shard_00000.bin"), slurp(scratch / "b" / "shard_00000.bin"));
  EXPECT_EQ(slurp(scratch / "a" / "manifest.json"), slurp(scratch / "b" / "manifest.json"));
  EXPECT_NE(slurp(scratch / "a" / "shard_00000.bin"), slurp(scratch / "c" / "shard_00000.bin"));
}

TEST(Synth, NormsMultiplyByAboutOne) {
  for (const char* name : {"gemma-3-1b", "llama-3.2-1b"}) {
    const SmallPreset small(name);
    Scratch scratch;
    synth(small.preset, scratch / "out", with("q8_0"));
    const RdrrReader reader = RdrrReader::open(scratch / "out");
    const ModelConfig config = read_model_config(reader.manifest(), "manifest.json");
    const Tensor tensor = reader.tensor(*reader.find_slot("layer1.attn_norm"));
    const auto* values = reinterpret_cast<const float*>(tensor.bytes.data());
    for (int i = 0; i < config.hidden; ++i) EXPECT_NEAR(values[i] + config.norm_offset, 1, 0.3);
  }
}

TEST(Synth, UnknownArchitecturesAndTakenNamesAreMetWithASentence) {
  EXPECT_THAT(sentence([] { preset_named("gemma-9-1b"); }), HasSubstr("gemma-3-1b"));
  const SmallPreset small("gemma-3-1b");
  Scratch scratch;
  synth(small.preset, scratch / "out", with("q8_0"));
  EXPECT_THAT(sentence([&] { synth(small.preset, scratch / "out", with("q8_0")); }), HasSubstr("already there"));
}

TEST(Synth, CancellingLeavesNothing) {
  const SmallPreset small("gemma-3-1b");
  Scratch scratch;
  SynthOptions options = with("q8_0");
  options.cancelled = [] { return true; };
  EXPECT_THAT(sentence([&] { synth(small.preset, scratch / "out", options); }), HasSubstr("interrupted"));
  EXPECT_THAT(scratch.names(), IsEmpty());
}

}  // namespace
}  // namespace doppler
