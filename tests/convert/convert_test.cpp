#include "convert/convert.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <limits>

#include "base/half.h"
#include "convert/tensor_map.h"
#include "format/decode.h"
#include "model/weights.h"
#include "support/scratch.h"

namespace doppler {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Scratch;
using testing::sentence;
using testing::slurp;
using testing::spill;

const char* const kModels[] = {"gemma3-a", "gemma3-b", "gemma2-a", "gptoss-a", "llama-a", "qwen3-a"};

fs::path model(const std::string& name) { return fs::path(DOPPLER_TEST_DATA) / "models" / name; }

ConvertOptions with(const std::string& recipe) {
  ConvertOptions options;
  options.recipe = recipe_named(recipe);
  options.no_tokenizer = true;
  options.threads = 2;
  return options;
}

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

// A copy of a test checkpoint that a test may spoil: `edit` changes tensors by name; config.json is `config`.
class Checkpoint {
 public:
  explicit Checkpoint(const std::string& name) : folder_(scratch_ / "source"), source_(model(name)) {
    fs::create_directory(folder_);
    config = parse_json(slurp(model(name) / "config.json"), name);
    for (const auto& [key, raw] : source_.tensors()) tensors.push_back(raw);
  }
  RawTensor& tensor(const std::string& name) {
    for (RawTensor& raw : tensors) {
      if (raw.name == name) return raw;
    }
    ADD_FAILURE() << name;
    return tensors.front();
  }
  void remove(const std::string& name) {
    std::erase_if(tensors, [&](const RawTensor& raw) { return raw.name == name; });
  }
  // Bytes that belong to this checkpoint, to be changed before save().
  std::vector<std::byte>& own(RawTensor& raw) {
    bytes_.push_back(std::make_unique<std::vector<std::byte>>(raw.bytes.begin(), raw.bytes.end()));
    raw.bytes = *bytes_.back();
    return *bytes_.back();
  }
  const fs::path& save() {
    spill(folder_ / "config.json", config.dump());
    write_safetensors(folder_ / "model.safetensors", tensors);
    return folder_;
  }
  fs::path target() const { return scratch_ / "target"; }
  const Scratch& scratch() const { return scratch_; }
  std::string refusal(const ConvertOptions& options = with("f32")) {
    const std::string text = sentence([&] { convert(save(), target(), options); });
    EXPECT_THAT(scratch_.names(), ElementsAre("source")) << "nothing may be left";
    return text;
  }

  Json config;
  std::vector<RawTensor> tensors;

 private:
  Scratch scratch_;
  fs::path folder_;
  SafetensorsFolder source_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> bytes_;
};

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
      EXPECT_THAT(disagreements(build_plan(config), weights_of(reader)), IsEmpty()) << name;
    }
  }
}

TEST(Convert, SlotsAreWrittenAndAlsoFollowFromTheNames) {
  for (const char* name : kModels) {
    Scratch scratch;
    convert(model(name), scratch / "out", with("q8_0"));
    const RdrrReader reader = RdrrReader::open(scratch / "out");
    Json manifest = reader.manifest();
    for (auto& item : manifest["tensors"].items()) item.value().erase("slot");
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

TEST(Convert, ADisagreementOfConfigAndTensorsStopsWithTheNames) {
  {
    Checkpoint c("gemma3-a");
    c.remove("model.layers.3.post_feedforward_layernorm.weight");
    EXPECT_THAT(c.refusal(), HasSubstr("model.layers.3.post_feedforward_layernorm.weight is missing"));
  }
  {
    Checkpoint c("llama-a");  // a norm that the family's mathematics does not have
    RawTensor extra = c.tensor("model.layers.1.input_layernorm.weight");
    extra.name = "model.layers.1.pre_feedforward_layernorm.weight";
    c.tensors.push_back(extra);
    EXPECT_THAT(c.refusal(), HasSubstr("model.layers.1.pre_feedforward_layernorm.weight [128] is there, but nothing"));
  }
  {
    Checkpoint c("gptoss-a");
    c.config["attention_bias"] = false;
    EXPECT_THAT(c.refusal(), HasSubstr("model.layers.0.self_attn.k_proj.bias [64] is there, but nothing uses it"));
  }
  {
    Checkpoint c("gemma3-a");
    c.config["intermediate_size"] = 321;
    EXPECT_THAT(c.refusal(), HasSubstr("has shape [320, 160], but the config calls for [321, 160]"));
  }
  {
    Checkpoint c("gptoss-a");
    c.config["num_local_experts"] = 9;
    EXPECT_THAT(c.refusal(), HasSubstr("do not pack the [9, 192, 128]"));
  }
  {
    Checkpoint c("gemma3-a");
    c.remove("model.embed_tokens.weight");
    EXPECT_THAT(c.refusal(), HasSubstr("no embedding"));
  }
  {
    Checkpoint c("gemma3-a");
    c.config["num_hidden_layers"] = 6;
    EXPECT_THAT(c.refusal(), HasSubstr("and 1 more")) << "13 tensors of layer 6, 12 of them named";
  }
}

TEST(Convert, TheVocabularyIsTheEmbeddings) {
  Checkpoint c("gemma3-a");
  c.config["vocab_size"] = 319;
  const ArtefactReport report = convert(c.save(), c.target(), with("f32"));
  EXPECT_THAT(report.notes, Contains(HasSubstr("config.json says 319 tokens, the embedding has 320")));
  EXPECT_EQ(read_model_config(RdrrReader::open(c.target()).manifest(), "").vocab, 320);
}

TEST(Convert, ARepeatedOutputMatrixIsLeftOutAndAnotherOneStops) {
  Checkpoint c("gemma3-a");
  RawTensor head = c.tensor("model.embed_tokens.weight");
  head.name = "lm_head.weight";
  c.tensors.push_back(head);
  EXPECT_THAT(convert(c.save(), c.target(), with("f32")).notes, Contains(HasSubstr("repeats the embedding")));
  Checkpoint d("gemma3-a");
  d.tensors.push_back(head);
  d.own(d.tensors.back())[0] ^= std::byte{1};
  EXPECT_THAT(d.refusal(), HasSubstr("lm_head.weight is there and differs"));
}

TEST(Convert, WeightsThatAreNoNumbersAreNamed) {
  Checkpoint c("llama-a");
  RawTensor& raw = c.tensor("model.layers.2.mlp.up_proj.weight");
  const uint16_t nan = 0x7fc0;
  std::memcpy(c.own(raw).data() + 2 * (128 * 77 + 5), &nan, 2);
  EXPECT_THAT(c.refusal(with("q4_k_m")), HasSubstr("model.layers.2.mlp.up_proj.weight, row 77"));
  Checkpoint d("gptoss-a");
  d.own(d.tensor("model.layers.0.mlp.experts.down_proj_scales"))[3] = std::byte{255};
  EXPECT_THAT(d.refusal(), HasSubstr("down_proj_scales"));
}

TEST(Convert, WeightsThatDoNotFitHalfPrecisionAreNamed) {
  Checkpoint c("llama-a");
  const uint16_t large = f32_to_bf16(1e6f);
  std::memcpy(c.own(c.tensor("model.layers.2.mlp.up_proj.weight")).data(), &large, 2);
  EXPECT_THAT(c.refusal(with("f16")), HasSubstr("too large for F16"));
  EXPECT_NO_THROW(convert(c.save(), c.target(), with("bf16")));
}

TEST(Convert, WrongPlacesAreMetWithASentence) {
  Scratch scratch;
  EXPECT_THAT(sentence([&] { convert(scratch / "nowhere", scratch / "out", with("f32")); }),
              HasSubstr("not a checkpoint"));
  EXPECT_THAT(sentence([&] { convert(model("llama-a"), model("llama-a"), with("f32")); }),
              HasSubstr("the same folder"));
  EXPECT_THAT(sentence([&] { convert(model("llama-a"), model("llama-a") / ".." / "llama-a" / "", with("f32")); }),
              HasSubstr("the same folder"));
  ConvertOptions force = with("f32");
  force.replace = true;
  EXPECT_THAT(sentence([&] { convert(model("llama-a"), fs::path(DOPPLER_TEST_DATA), force); }),
              HasSubstr("inside the destination"));
  fs::create_directory(scratch / "full");
  spill(scratch / "full" / "holiday.jpg", "x");
  EXPECT_THAT(sentence([&] { convert(model("llama-a"), scratch / "full", with("f32")); }), HasSubstr("already there"));
  EXPECT_THAT(sentence([&] { convert(model("llama-a"), scratch / "full", force); }), HasSubstr("artefacts only"));
  EXPECT_TRUE(fs::exists(scratch / "full" / "holiday.jpg"));
  spill(scratch / "file", "x");
  EXPECT_THAT(sentence([&] { convert(model("llama-a"), scratch / "file" / "out", with("f32")); }), HasSubstr("folder"));
}

TEST(Convert, ForceReplacesAnArtefact) {
  Scratch scratch;
  convert(model("llama-a"), scratch / "out", with("f32"));
  ConvertOptions options = with("q8_0");
  EXPECT_THAT(sentence([&] { convert(model("llama-a"), scratch / "out", options); }), HasSubstr("--force"));
  options.replace = true;
  convert(model("llama-a"), scratch / "out", options);
  EXPECT_EQ(RdrrReader::open(scratch / "out").manifest()["quantization"], "Q8_0");
  EXPECT_THAT(scratch.names(), ElementsAre("out"));
}

TEST(Convert, AnUnknownFamilyIsRefused) {
  Checkpoint c("llama-a");
  c.config["architectures"] = {"MambaForCausalLM"};
  EXPECT_THAT(c.refusal(), HasSubstr("no family serves this model"));
}

TEST(Convert, AMissingTokenizerIsAnErrorUnlessExcused) {
  Checkpoint c("llama-a");
  ConvertOptions options = with("f32");
  options.no_tokenizer = false;
  EXPECT_THAT(c.refusal(options), HasSubstr("--no-tokenizer"));
  options.no_tokenizer = true;
  EXPECT_THAT(convert(c.save(), c.target(), options).notes, Contains(HasSubstr("--prompt-ids")));
  EXPECT_TRUE(RdrrReader::open(c.target()).manifest()["tokenizer"].is_null());
}

TEST(Convert, TokenizerFilesTravelAlongAndStopTokensAreMerged) {
  Checkpoint c("gemma3-b");
  c.config["eos_token_id"] = 1;
  const fs::path folder = c.save();
  spill(folder / "tokenizer.json",
        R"({"model":{"vocab":{"a":0,"b":1}},"added_tokens":[{"content":"b"},{"content":"c"}]})");
  spill(folder / "tokenizer_config.json", R"({"add_bos_token":true})");
  spill(folder / "generation_config.json", R"({"eos_token_id":[106,1]})");
  spill(folder / "chat_template.jinja", "{{ x }}");
  ConvertOptions options = with("f32");
  options.no_tokenizer = false;
  convert(folder, c.target(), options);
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"}) {
    EXPECT_EQ(slurp(c.target() / name), slurp(folder / name)) << name;
  }
  const RdrrReader reader = RdrrReader::open(c.target());
  EXPECT_EQ(reader.manifest()["tokenizer"]["vocabSize"], 3);
  EXPECT_EQ(reader.manifest()["tokenizer"]["addBosToken"], true);
  EXPECT_THAT(read_model_config(reader.manifest(), "").eos_ids, ElementsAre(106, 1));
  spill(folder / "tokenizer.json", "{");
  options.replace = true;
  EXPECT_THAT(sentence([&] { convert(folder, c.target(), options); }), HasSubstr("tokenizer.json"));
  EXPECT_NO_THROW(RdrrReader::open(c.target())) << "the artefact that was there is untouched";
}

TEST(Convert, CancellingLeavesNothing) {
  Checkpoint c("qwen3-a");
  ConvertOptions options = with("q4_k_m");
  int calls = 0;
  options.cancelled = [&] { return ++calls == 20; };
  EXPECT_THAT(c.refusal(options), HasSubstr("interrupted"));
  EXPECT_EQ(calls, 20);
}

TEST(Convert, AKilledConversionLeavesNothingThatLooksWhole) {
  Scratch scratch;
  const pid_t child = ::fork();
  if (child == 0) {
    ConvertOptions options = with("q8_0");
    options.threads = 1;
    options.shard_size = 65536;
    options.progress = [](uint64_t done, uint64_t all) {
      if (done * 10 > all * 9) ::kill(::getpid(), SIGKILL);
    };
    convert(model("qwen3-a"), scratch / "out", options);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(fs::exists(scratch / "out"));
  for (const std::string& name : scratch.names()) EXPECT_NE(sentence([&] { RdrrReader::open(scratch / name); }), "");
}

TEST(Convert, AFileThatCannotGrowEndsInASentenceAndLeavesNothing) {
  Checkpoint c("llama-a");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  c.save();
  const auto old = ::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 200'000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string text = sentence([&] { convert(model("llama-a"), c.target(), with("f32")); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, old);
  EXPECT_THAT(text, HasSubstr("cannot be written"));
  EXPECT_THAT(c.scratch().names(), ElementsAre("source"));
}

TEST(Convert, AFullDiskEndsInASentenceAndLeavesNothing) {
  Scratch scratch;
  const fs::path disk = scratch / "disk";
  fs::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=4m") != 0) GTEST_SKIP() << "needs the right to mount a tmpfs";
  // Too small from the start: said before anything is written, with the room it needs.
  spill(disk / "ballast", std::string(3'000'000, 'x'));
  EXPECT_THAT(sentence([&] { convert(model("llama-a"), disk / "out", with("f32")); }), HasSubstr("too little room"));
  // Enough at the start, then somebody else takes it.
  fs::remove(disk / "ballast");
  ConvertOptions options = with("f32");
  options.progress = [&](uint64_t done, uint64_t) {
    if (done > 200'000 && !fs::exists(disk / "ballast")) spill(disk / "ballast", std::string(4 << 20, 'x'));
  };
  const std::string text = sentence([&] { convert(model("llama-a"), disk / "out", options); });
  EXPECT_THAT(text, HasSubstr("Free some disk space"));
  std::vector<std::string> left;
  for (const auto& item : fs::directory_iterator(disk)) left.push_back(item.path().filename().string());
  EXPECT_THAT(left, ElementsAre("ballast"));
  ::umount(disk.c_str());
}

}  // namespace
}  // namespace doppler
