// Artefact → GGUF → artefact.
#include <gmock/gmock.h>

#include "convert/gguf_export.h"
#include "convert/synth.h"
#include "format/decode.h"
#include "import/gguf_model.h"
#include "support/checkpoint.h"
#include "tokenizer/tokenizer.h"

namespace doppler {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kCheckpoints[] = {"gemma3-b", "gemma2-a", "gptoss-a", "llama-a", "qwen3-a"};

ConvertOptions as_it_is() {
  ConvertOptions options;
  options.threads = 2;
  options.id = "same";
  return options;
}

// Slots whose tensors differ in type, shape or any byte.
std::vector<std::string> differences(const fs::path& a, const fs::path& b) {
  const RdrrReader left = RdrrReader::open(a), right = RdrrReader::open(b);
  std::vector<std::string> out;
  EXPECT_EQ(left.entries().size(), right.entries().size());
  for (const RdrrTensorEntry& entry : left.entries()) {
    const RdrrTensorEntry* other = right.find_slot(entry.slot);
    if (!other || other->name != entry.name || other->dtype != entry.dtype || other->shape != entry.shape ||
        !std::ranges::equal(left.tensor(entry).bytes, right.tensor(*other).bytes))
      out.push_back(entry.slot);
  }
  return out;
}

TEST(GgufRoundTrip, GivesIdenticalTensorsAndNumbers) {
  for (const std::string name : kCheckpoints) {
    for (const char* recipe : {"f32", "bf16", "q8_0"}) {
      SCOPED_TRACE(name + " " + recipe);
      Scratch scratch;
      ConvertOptions options = with(recipe);
      options.id = "same";
      convert(model(name), scratch / "a", options);
      export_gguf(scratch / "a", scratch / "m.gguf", {.threads = 2});
      convert(scratch / "m.gguf", scratch / "b", as_it_is());
      EXPECT_THAT(differences(scratch / "a", scratch / "b"), ElementsAre());
      const auto config = [&](const char* folder) {
        return read_model_config(RdrrReader::open(scratch / folder).manifest(), folder);
      };
      EXPECT_EQ(config("a"), config("b"));
      EXPECT_TRUE(RdrrReader::verify(scratch / "b").empty());
    }
  }
}

TEST(GgufRoundTrip, TheShippedModelComesBackWithItsTokenizer) {
  Scratch scratch;
  export_gguf(DOPPLER_SOURCE_DIR "/models/tiny", scratch / "m.gguf", {.threads = 2});
  convert(scratch / "m.gguf", scratch / "b", as_it_is());
  EXPECT_THAT(differences(DOPPLER_SOURCE_DIR "/models/tiny", scratch / "b"), ElementsAre());
  const Tokenizer before = Tokenizer::load(DOPPLER_SOURCE_DIR "/models/tiny"), after = Tokenizer::load(scratch / "b");
  EXPECT_EQ(after.named().bos, before.named().bos);
  EXPECT_EQ(after.named().eos, before.named().eos);
  const std::string text =
      "Once upon a time, there was a little girl named Lily. <start_of_turn>She loved to play outside in the park.\n";
  EXPECT_EQ(after.encode(text, true), before.encode(text, true));
  EXPECT_EQ(after.decode(after.encode("Grüße, 世界!", false), true), "Grüße, 世界!");
  EXPECT_EQ(parse_json(slurp(scratch / "b/tokenizer_config.json"), "b")["chat_template"],
            parse_json(slurp(DOPPLER_SOURCE_DIR "/models/tiny/tokenizer_config.json"), "a")["chat_template"]);
}

TEST(GgufExport, RowsThatAreNoWholeBlocksBecomeATypeThatFits) {
  Scratch scratch;
  convert(model("qwen3-a"), scratch / "a", with("q4_k_m"));  // rows of 128: half a block of 256
  const ArtefactReport report = export_gguf(scratch / "a", scratch / "m.gguf", {.threads = 2});
  EXPECT_THAT(report.notes, Contains(HasSubstr("Q4_K here and Q8_0 there")));
  const GgufFile file(scratch / "m.gguf");
  EXPECT_EQ(file.tensor("blk.0.attn_q.weight")->dtype, DType::kQ8_0);
  EXPECT_EQ(file.tensor("blk.0.ffn_down.weight")->cols(), 256);
  EXPECT_EQ(info(file.tensor("blk.0.ffn_down.weight")->dtype).block_weights, 256) << "this one fits";
  EXPECT_EQ(file.tensor("blk.0.attn_norm.weight")->dtype, DType::kF32);
}

TEST(GgufExport, MixesAreThoseOfLlamaCpp) {
  // A layer of 26 with hidden 1152 (4.5 blocks of 256) and ffn 6912 (27 blocks).
  const auto type = [](const char* quant, const char* slot, QuantClass kind, int64_t cols, bool output = false) {
    return gguf_export_dtype(quant, slot, kind, output, DType::kQ4_K, cols, 26);
  };
  EXPECT_EQ(type("q4_k_m", "layer5.q_proj", QuantClass::kMatrix, 1152), DType::kQ5_0);
  EXPECT_EQ(type("q4_k_m", "layer5.o_proj", QuantClass::kMatrix, 1024), DType::kQ4_K);
  EXPECT_EQ(type("q4_k_m", "layer0.v_proj", QuantClass::kValue, 1152), DType::kQ8_0);
  EXPECT_EQ(type("q4_k_m", "layer3.v_proj", QuantClass::kValue, 1152), DType::kQ5_0);
  EXPECT_EQ(type("q4_k_m", "layer0.down_proj", QuantClass::kDown, 6912), DType::kQ6_K);
  EXPECT_EQ(type("q4_k_m", "layer3.down_proj", QuantClass::kDown, 6912), DType::kQ4_K);
  EXPECT_EQ(type("q4_k_m", "embed", QuantClass::kEmbedding, 1152, true), DType::kQ8_0);
  EXPECT_EQ(type("q4_k_m", "embed", QuantClass::kEmbedding, 2048, true), DType::kQ6_K);
  EXPECT_EQ(type("q4_k_m", "embed", QuantClass::kEmbedding, 2048, false), DType::kQ4_K);
  EXPECT_EQ(type("q4_0", "layer0.down_proj", QuantClass::kDown, 6912), DType::kQ4_0);
  EXPECT_EQ(type("q4_0", "embed", QuantClass::kEmbedding, 1152, true), DType::kQ8_0);
  EXPECT_EQ(type("q4_0", "layer0.attn_norm", QuantClass::kKeep, 1152), DType::kF32);
  EXPECT_EQ(type("", "layer0.q_proj", QuantClass::kMatrix, 1152), DType::kQ8_0);
  EXPECT_EQ(type("", "layer0.q_proj", QuantClass::kMatrix, 100), DType::kF16);
  EXPECT_THAT(sentence([&] { type("q9", "embed", QuantClass::kEmbedding, 256); }), HasSubstr("one of q4_0, q4_k_m"));
}

TEST(GgufExport, RefusesANumberThatTheFormatHasNoPlaceFor) {
  Scratch scratch;
  convert(model("gemma3-a"), scratch / "a", with("f32"));  // its attention scale is not that of its head size
  EXPECT_THAT(sentence([&] { export_gguf(scratch / "a", scratch / "m.gguf", {}); }), HasSubstr("queryPreAttnScalar"));
  EXPECT_THAT(scratch.names(), ElementsAre("a"));
}

TEST(GgufExport, ReplacesOnlyWhenAsked) {
  Scratch scratch;
  convert(model("qwen3-a"), scratch / "a", with("f32"));
  export_gguf(scratch / "a", scratch / "m.gguf", {});
  EXPECT_THAT(sentence([&] { export_gguf(scratch / "a", scratch / "m.gguf", {}); }), HasSubstr("already there"));
  export_gguf(scratch / "a", scratch / "m.gguf", {.replace = true});
  testing::spill(scratch / "letter.gguf", "dear all");
  EXPECT_THAT(sentence([&] { export_gguf(scratch / "a", scratch / "letter.gguf", {.replace = true}); }),
              HasSubstr("replaces GGUF files only"));
}

TEST(GgufExport, AnInterruptedExportLeavesNothing) {
  Scratch scratch;
  convert(model("qwen3-a"), scratch / "a", with("f32"));
  GgufExportOptions options;
  options.cancelled = [] { return true; };
  EXPECT_THAT(sentence([&] { export_gguf(scratch / "a", scratch / "m.gguf", options); }), HasSubstr("interrupted"));
  EXPECT_THAT(scratch.names(), ElementsAre("a"));
}

TEST(GgufConvert, TypesWithoutKernelsBecomeQ8_0AndAreNamed) {
  Scratch scratch;
  convert(model("qwen3-a"), scratch / "a", with("f32"));
  export_gguf(scratch / "a", scratch / "m.gguf", {.quant = "q4_0"});
  const ArtefactReport report = convert(scratch / "m.gguf", scratch / "b", as_it_is());
  EXPECT_THAT(report.notes, Contains(HasSubstr("Q4_0, which not every backend has kernels for: they become Q8_0")));
  // Levels of 4 bits and an f16 scale are the same numbers with levels of 8 bits.
  const GgufModel gguf = read_gguf_model(scratch / "m.gguf");
  const RdrrReader reader = RdrrReader::open(scratch / "b");
  for (const GgufSlot& slot : gguf.slots) {
    if (slot.dtype() != DType::kQ4_0 || slot.rearranged()) continue;
    const Tensor now = reader.tensor(*reader.find_slot(slot.slot));
    ASSERT_EQ(now.dtype, DType::kQ8_0);
    std::vector<float> a(static_cast<size_t>(now.cols())), b(a.size());
    for (int64_t r = 0; r < now.rows(); ++r) {
      decode_row(DType::kQ4_0, slot.parts[0]->row(r), a.data(), a.size());
      decode_row(DType::kQ8_0, now.row(r), b.data(), b.size());
      ASSERT_EQ(a, b) << slot.slot << " row " << r;
    }
  }
}

TEST(GgufConvert, ARecipeQuantisesAgain) {
  Scratch scratch;
  convert(model("qwen3-a"), scratch / "a", with("f32"));
  export_gguf(scratch / "a", scratch / "m.gguf", {.quant = "bf16"});
  convert(scratch / "m.gguf", scratch / "b", with("q6_k"));
  EXPECT_EQ(RdrrReader::open(scratch / "b").find_slot("layer0.q_proj")->dtype, DType::kQ6_K);
}

}  // namespace
}  // namespace doppler
