#include "convert/convert.h"

#include <cmath>

#include "format/decode.h"
#include "import/tensor_map.h"
#include "jinja/chat_template.h"
#include "model/weights.h"
#include "support/checkpoint.h"

namespace doppler {
namespace {

using ::testing::Contains, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty;

const char* const kModels[] = {"gemma3-a", "gemma3-b", "gemma2-a", "gptoss-a", "llama-a", "qwen3-a"};

Weights weights_of(const RdrrReader& reader) {
  Weights weights;
  for (const RdrrTensorEntry& entry : reader.entries()) weights.add(entry.slot, reader.tensor(entry));
  return weights;
}

std::vector<float> decoded(const Tensor& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.rows() * tensor.cols()));
  for (int64_t r = 0; r < tensor.rows(); ++r) {
    decode_row(tensor.dtype, tensor.row(r), out.data() + r * tensor.cols(), static_cast<size_t>(tensor.cols()));
  }
  return out;
}

TEST(Convert, F32ArtefactsHoldEveryWeightBitByBit) {
  for (const char* name : kModels) {
    Scratch scratch;
    ConvertOptions options = with("f32");
    options.shard_size = 65536;  // most matrices cross shards
    convert(model(name), scratch / "out", options);
    EXPECT_THAT(RdrrReader::verify(scratch / "out"), IsEmpty());
    const RdrrReader reader = RdrrReader::open(scratch / "out");
    EXPECT_EQ(reader.copied_bytes(), 0u);
    const SafetensorsFolder source(model(name));
    for (const RdrrTensorEntry& entry : reader.entries()) {
      const RawTensor* raw = source.find(entry.name);
      if (!raw) continue;  // packed experts have a test of their own
      Tensor original;
      ASSERT_TRUE(to_tensor(*raw, original));
      ASSERT_EQ(entry.dtype, DType::kF32);
      EXPECT_EQ(decoded(reader.tensor(entry)), decoded(original)) << name << " " << entry.name;
    }
  }
}

TEST(Convert, ConfigAndTensorsComeBackFromTheArtefactAndAgree) {
  for (const char* name : kModels) {
    for (const char* recipe : {"q4_k_m", "q8_0", "bf16"}) {
      Scratch scratch;
      convert(model(name), scratch / "out", with(recipe));
      const RdrrReader reader = RdrrReader::open(scratch / "out");
      const ModelConfig config = read_model_config(reader.manifest(), "manifest.json");
      const Json hf = parse_json(slurp(model(name) / "config.json"), name);
      ModelConfig expected = config_from_hf(family_for(hf, name), hf, name);
      expected.id = "out";
      EXPECT_EQ(config, expected) << name;
      EXPECT_THAT(weight_faults(build_plan(config), weights_of(reader)), IsEmpty()) << name;
    }
  }
}

TEST(Convert, SlotsAreWrittenAndAlsoFollowFromTheNames) {
  for (const char* name : kModels) {
    Scratch scratch;
    convert(model(name), scratch / "out", with("q8_0"));
    const RdrrReader reader = RdrrReader::open(scratch / "out");
    Json manifest = reader.manifest();
    for (Json& tensor : manifest["tensors"]) tensor.erase("slot");
    const RdrrManifest inferred = parse_rdrr_manifest(manifest, nullptr, "manifest.json");
    for (size_t i = 0; i < inferred.tensors.size(); ++i) EXPECT_EQ(inferred.tensors[i].slot, reader.entries()[i].slot);
  }
}

TEST(Convert, RecipesGiveEachClassItsDtype) {
  Scratch scratch;
  convert(model("gemma3-a"), scratch / "out", with("q4_k_m"));
  const RdrrReader reader = RdrrReader::open(scratch / "out");
  EXPECT_EQ(reader.manifest()["quantization"], "Q4_K_M");
  EXPECT_EQ(reader.find_slot("embed")->dtype, DType::kQ6_K);
  EXPECT_EQ(reader.find_slot("layer0.q_proj")->dtype, DType::kQ4_K);
  EXPECT_EQ(reader.find_slot("layer0.attn_norm")->dtype, DType::kF32);
  EXPECT_EQ(reader.find_slot("layer2.down_proj")->dtype, DType::kQ6_K);
  EXPECT_EQ(reader.find_slot("layer1.down_proj")->dtype, DType::kQ4_K);
  EXPECT_EQ(reader.find_slot("layer2.v_proj")->dtype, DType::kQ6_K);
}

TEST(Convert, TheReportAddsUpAndItsErrorsAreThoseOfTheTypes) {
  Scratch scratch;
  const ArtefactReport report = convert(model("llama-a"), scratch / "out", with("q4_k_m"));
  uint64_t weights = 0;
  for (const ClassReport& line : report.classes) {
    weights += line.weights;
    const double error = line.relative_error();
    if (line.dtype == DType::kF32) {
      EXPECT_EQ(error, 0);
    }
    if (line.dtype == DType::kQ4_K) {
      EXPECT_TRUE(error > 0.03 && error < 0.12) << error;
    }
    if (line.dtype == DType::kQ6_K) {
      EXPECT_TRUE(error > 0.005 && error < 0.03) << error;
    }
  }
  EXPECT_EQ(weights, report.weights);
  EXPECT_EQ(report.bytes, RdrrReader::open(scratch / "out").manifest()["totalSize"]);
}

TEST(Convert, BytesDoNotDependOnThreads) {
  Scratch scratch;
  for (const int threads : {1, 2, 5}) {
    ConvertOptions options = with("q4_k_m");
    options.threads = threads;
    options.id = "same";
    convert(model("gptoss-a"), scratch / std::to_string(threads), options);
  }
  EXPECT_EQ(slurp(scratch / "1" / "manifest.json"), slurp(scratch / "2" / "manifest.json"));
  EXPECT_EQ(slurp(scratch / "1" / "manifest.json"), slurp(scratch / "5" / "manifest.json")) << "hashes included";
}

TEST(Convert, ExpertsStayMxfp4AndRoutersAreKept) {
  Scratch scratch;
  convert(model("gptoss-a"), scratch / "out", with("q4_k_m"));
  const RdrrReader reader = RdrrReader::open(scratch / "out");
  const SafetensorsFolder source(model("gptoss-a"));
  EXPECT_EQ(reader.find_slot("layer0.router")->dtype, DType::kF32);
  EXPECT_EQ(reader.find_slot("layer0.sinks")->dtype, DType::kF32);
  const RdrrTensorEntry* entry = reader.find_slot("layer3.experts_gate_up");
  ASSERT_EQ(entry->dtype, DType::kMXFP4);
  EXPECT_EQ(entry->role, "expert");
  const std::vector<float> values = decoded(reader.tensor(*entry));
  const RawTensor& blocks = *source.find("model.layers.3.mlp.experts.gate_up_proj_blocks");
  const RawTensor& scales = *source.find("model.layers.3.mlp.experts.gate_up_proj_scales");
  static constexpr float kLevels[] = {0, .5, 1, 1.5, 2, 3, 4, 6, -0.f, -.5, -1, -1.5, -2, -3, -4, -6};
  ASSERT_EQ(values.size(), blocks.bytes.size() * 2);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto byte = static_cast<unsigned>(blocks.bytes[i / 2]);
    const float scale = std::ldexp(1.f, static_cast<int>(scales.bytes[i / 32]) - 127);
    ASSERT_EQ(values[i], kLevels[i % 2 ? byte >> 4 : byte & 15] * scale) << i;
  }
}

TEST(Convert, WithoutARecipeTheCheckpointsOwnListOfUnquantisedModulesIsObeyed) {
  Scratch scratch;
  ConvertOptions options = with("q4_k_m");
  options.recipe.reset();
  const ArtefactReport report = convert(model("gptoss-a"), scratch / "out", options);
  const RdrrReader reader = RdrrReader::open(scratch / "out");
  EXPECT_EQ(reader.find_slot("layer0.q_proj")->dtype, DType::kBF16);
  EXPECT_EQ(reader.find_slot("embed")->dtype, DType::kBF16);
  EXPECT_EQ(reader.find_slot("layer0.experts_down")->dtype, DType::kMXFP4);
  EXPECT_THAT(report.notes, Contains(HasSubstr("18 matrices keep their precision")));
}

TEST(Convert, TextModelsAreFoundUnderEveryPrefix) {
  for (const auto& [body, head] :
       {std::pair("language_model.model.", "language_model."), {"model.language_model.", ""}}) {
    Checkpoint checkpoint("gemma3-a");
    checkpoint.config = {{"architectures", {"Gemma3ForConditionalGeneration"}}, {"text_config", checkpoint.config}};
    for (RawTensor& raw : checkpoint.tensors) raw.name = body + raw.name.substr(6);
    RawTensor vision = checkpoint.tensor(std::string(body) + "norm.weight");
    vision.name = "vision_tower.patch.weight";
    checkpoint.tensors.push_back(vision);
    const ArtefactReport report = convert(checkpoint.save(), checkpoint.target(), with("f32"));
    EXPECT_THAT(report.notes, Contains(HasSubstr("1 tensors are left out: the vision tower")));
    EXPECT_EQ(RdrrReader::open(checkpoint.target()).find_slot("embed")->name,
              std::string(body) + "embed_tokens.weight");
  }
}

TEST(Convert, TheVocabularyIsTheEmbeddings) {
  Checkpoint c("gemma3-a");
  c.config["vocab_size"] = 319;
  const ArtefactReport report = convert(c.save(), c.target(), with("f32"));
  EXPECT_THAT(report.notes, Contains(HasSubstr("config.json says 319 tokens, the embedding has 320")));
  EXPECT_EQ(read_model_config(RdrrReader::open(c.target()).manifest(), "").vocab, 320);
}

TEST(Convert, TokenizerFilesTravelAlongAndStopTokensAreMerged) {
  Checkpoint c("gemma3-b");
  c.config["eos_token_id"] = 1;
  const fs::path folder = c.save();
  spill(folder / "tokenizer.json",
        R"({"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]},
            "added_tokens":[{"id":1,"content":"b"},{"id":2,"content":"c"}]})");
  spill(folder / "tokenizer_config.json", R"({"add_bos_token":true})");
  spill(folder / "generation_config.json", R"({"eos_token_id":[106,1]})");
  spill(folder / "chat_template.jinja", "{{ bos_token }}");
  spill(folder / "special_tokens_map.json", R"({"bos_token":"<only here>"})");
  ConvertOptions options = with("f32");
  options.no_tokenizer = false;
  convert(folder, c.target(), options);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja",
                           "special_tokens_map.json"}) {
    EXPECT_EQ(slurp(c.target() / name), slurp(folder / name)) << name;
  }
  EXPECT_EQ(ChatTemplate::load(c.target()).render(Json::array(), Json(), true), "<only here>");
  const RdrrReader reader = RdrrReader::open(c.target());
  EXPECT_EQ(reader.manifest()["tokenizer"]["vocabSize"], 3);
  EXPECT_EQ(reader.manifest()["tokenizer"]["addBosToken"], true);
  EXPECT_THAT(read_model_config(reader.manifest(), "").eos_ids, ElementsAre(106, 1));
  spill(folder / "tokenizer.json", "{");
  options.replace = true;
  EXPECT_THAT(sentence([&] { convert(folder, c.target(), options); }), HasSubstr("tokenizer.json"));
  EXPECT_NO_THROW(RdrrReader::open(c.target())) << "the artefact that was there is untouched";
}

}  // namespace
}  // namespace doppler
