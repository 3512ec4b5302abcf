// The public form of RDRR: folders that another writer made load and run.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "engine/backend.h"
#include "format/shard_hash.h"
#include "support/checkpoint.h"
#include "support/reference.h"

namespace doppler {
namespace {

std::string blake3_of(const std::string& bytes) {
  ShardHash hash("blake3");
  hash.update(std::as_bytes(std::span(bytes)));
  return hash.finish("");
}

// Writes an artefact of ours again as another writer of version 1 would: only the public keys, tensors by their Hugging
// Face names without slots, packed back to back, a tensor list in a file of its own, foreign blocks, blake3 digests.
void write_public(const fs::path& ours, const fs::path& folder, uint64_t shard_size) {
  const RdrrReader reader = RdrrReader::open(ours);
  const Json& from = reader.manifest();
  const Json& inference = from["inference"];
  fs::create_directory(folder);
  std::string stream;
  Json tensors = Json::object();
  for (const RdrrTensorEntry& entry : reader.entries()) {
    const Tensor tensor = reader.tensor(entry);
    const uint64_t begin = stream.size(), end = begin + tensor.bytes.size();
    stream.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    Json item = {{"shape", entry.shape}, {"dtype", name_of(entry.dtype)}, {"role", entry.role}};
    if (begin / shard_size == (end - 1) / shard_size) {
      item["shard"] = begin / shard_size;
      item["offset"] = begin % shard_size;
      item["size"] = end - begin;
    } else {
      item["size"] = end - begin;
      item["spans"] = Json::array();
      for (uint64_t at = begin; at < end;) {
        const uint64_t stop = std::min(end, (at / shard_size + 1) * shard_size);
        item["spans"].push_back({{"shardIndex", at / shard_size}, {"offset", at % shard_size}, {"size", stop - at}});
        at = stop;
      }
    }
    tensors[entry.name] = std::move(item);
  }
  Json shards = Json::array();
  for (uint64_t at = 0; at < stream.size(); at += shard_size) {
    const std::string bytes = stream.substr(at, shard_size);
    const std::string name = fmt::format("shard_{:05}.bin", shards.size());
    spill(folder / name, bytes);
    shards.push_back({{"index", shards.size()},
                      {"filename", name},
                      {"size", bytes.size()},
                      {"blake3", blake3_of(bytes)},
                      {"offset", at}});
  }
  Json pattern = inference["layerPattern"];  // in its other spellings
  if (pattern["type"] == "every_n" && pattern["period"] == 2) {
    pattern = {{"type", "alternating"}, {"globalPattern", pattern["offset"] == 0 ? "even" : "odd"}};
  } else if (pattern["type"] == "every_n") {
    Json types = Json::array();
    for (int i = 0; i < from["architecture"]["numLayers"].get<int>(); ++i) {
      const bool global = (i - pattern["offset"].get<int>()) % pattern["period"].get<int>() == 0;
      types.push_back(global ? "full_attention" : "sliding_attention");
    }
    pattern = {{"type", "custom"}, {"period", nullptr}, {"layerTypes", types}, {"residualBranchScale", 1}};
  }
  const Json& attention = inference["attention"];
  const Json& norms = inference["normalization"];
  const Json manifest = {
      {"version", 1},
      {"modelId", "made-elsewhere"},
      {"modelType", "transformer"},
      {"quantization", "F32"},
      {"quantizationInfo", {{"weights", "f32"}, {"embeddings", "f32"}, {"compute", "f16"}, {"layout", "row"}}},
      {"architecture", from["architecture"]},
      {"moeConfig", nullptr},
      {"inference",
       {{"attention",
         {{"queryPreAttnScalar", attention["queryPreAttnScalar"]},
          {"attnLogitSoftcapping", attention["attnLogitSoftcapping"]},
          {"slidingWindow", attention["slidingWindow"]},
          {"queryKeyNorm", attention["queryKeyNorm"]},
          {"attentionBias", attention["attentionBias"]},
          {"causal", true}}},
        {"normalization",
         {{"rmsNormEps", norms["rmsNormEps"]},
          {"rmsNormWeightOffset", norms["rmsNormWeightOffset"]},
          {"postAttentionNorm", true},  // a model of two norms says so of the one before its feed-forward
          {"preFeedforwardNorm", norms["postFeedforwardNorm"]},
          {"postFeedforwardNorm", norms["postFeedforwardNorm"]}}},
        {"ffn", {{"activation", inference["ffn"]["activation"]}, {"gatedActivation", true}, {"swigluLimit", nullptr}}},
        {"rope",
         {{"ropeTheta", inference["rope"]["ropeTheta"]},
          {"ropeLocalTheta", inference["rope"].value("ropeLocalTheta", Json())},
          {"ropeScalingType", nullptr},
          {"mropeInterleaved", false}}},
        {"output",
         {{"tieWordEmbeddings", inference["output"]["tieWordEmbeddings"]},
          {"scaleEmbeddings", inference["output"]["scaleEmbeddings"]},
          {"finalLogitSoftcapping", inference["output"]["finalLogitSoftcapping"]}}},
        {"layerPattern", pattern},
        {"chatTemplate", {{"type", "gemma"}, {"enabled", true}}},
        {"execution", {{"kernels", {{"matmul", {{"digest", "sha256:00"}}}}}}},
        {"session", {{"decodeLoop", {{"batchSize", 4}}}}}}},
      {"shards", shards},
      {"totalSize", stream.size()},
      {"hashAlgorithm", "blake3"},
      {"tensorsFile", "tensors.json"},
      {"eos_token_id", from["eos_token_id"]}};
  spill(folder / "manifest.json", manifest.dump());
  spill(folder / "tensors.json", tensors.dump());
}

class PublicArtefact : public ::testing::TestWithParam<const char*> {};

TEST_P(PublicArtefact, LoadsAndComputesEveryStage) {
  const fs::path source = testing::model(GetParam());
  Scratch scratch;
  convert(source, scratch / "ours", testing::with("f32"));
  write_public(scratch / "ours", scratch / "theirs", 1 << 20);
  ASSERT_TRUE(fs::exists(scratch / "theirs/shard_00001.bin")) << "tensors must cross shards";
  const LoadedModel model = LoadedModel::load(scratch / "theirs");
  EXPECT_THAT(model.notes, ::testing::IsEmpty());
  EXPECT_THAT(RdrrReader::verify(scratch / "theirs"), ::testing::IsEmpty());
  const testing::Reference reference(source);
  const auto executor = make_executor(model, "cpu", {.context = 256, .threads = 2, .block = 0, .checked = true});
  const auto errors = testing::stage_errors(*executor, model.plan, reference);
  EXPECT_EQ(errors.size(), reference.by_step.size());
  for (const auto& [stage, error] : errors) EXPECT_LE(error, 1e-3) << stage;
}

INSTANTIATE_TEST_SUITE_P(All, PublicArtefact, ::testing::Values("gemma3-a", "gemma3-b", "gemma2-a", "qwen3-a"));

// models/tiny without the files that hold its chat template; its manifest names one.
Json tiny_without_template(const fs::path& folder) {
  const fs::path tiny = DOPPLER_SOURCE_DIR "/models/tiny";
  fs::create_directory(folder);
  fs::create_symlink(tiny / "shard_00000.bin", folder / "shard_00000.bin");
  fs::copy_file(tiny / "tokenizer.json", folder / "tokenizer.json");
  return parse_json(slurp(tiny / "manifest.json"), "manifest.json");
}

TEST(NamedChatTemplate, SaysWhatTheModelsOwnDoes) {
  Scratch scratch;
  spill(scratch / "m/manifest.json", tiny_without_template(scratch / "m").dump());
  const LoadedModel named = LoadedModel::load(scratch / "m"),
                    own = LoadedModel::load(DOPPLER_SOURCE_DIR "/models/tiny");
  const Json messages = Json::array({{{"role", "user"}, {"content", "A cat."}},
                                     {{"role", "assistant"}, {"content", "Meow"}},
                                     {{"role", "user"}, {"content", "And?"}}});
  EXPECT_EQ(named.need_chat_template().render(messages, nullptr, true),
            own.need_chat_template().render(messages, nullptr, true));
  EXPECT_TRUE(named.notes.empty());
}

TEST(NamedChatTemplate, AKindThatNobodyKnowsIsNamed) {
  Scratch scratch;
  Json manifest = tiny_without_template(scratch / "m");
  manifest["inference"]["chatTemplate"]["type"] = "semaphore";
  spill(scratch / "m/manifest.json", manifest.dump());
  EXPECT_THAT(LoadedModel::load(scratch / "m").notes, ::testing::ElementsAre(::testing::HasSubstr("semaphore")));
  manifest["inference"]["chatTemplate"]["enabled"] = false;
  spill(scratch / "m/manifest.json", manifest.dump());
  EXPECT_TRUE(LoadedModel::load(scratch / "m").notes.empty());
}

}  // namespace
}  // namespace doppler
