// What the readers of the public format ask of a manifest, as rules of our own: every artefact we write keeps them.
// DOPPLER_ORIGINAL=PATH has a checkout's own validator read the same artefacts (tests/original).
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>

#include "engine/loaded_model.h"
#include "support/checkpoint.h"

namespace doppler {
namespace {

// KEY:KIND of each section of `inference`; all must be there. b true or false, n a number, p one above zero, s a word,
// l a list; "?" allows null.
constexpr std::pair<const char*, const char*> kFields[] = {
    {"attention",
     "queryPreAttnScalar:p queryKeyNorm:b valueNorm:b attentionBias:b causal:b attentionOutputGate:b slidingWindow:p? "
     "attnLogitSoftcapping:p?"},
    {"normalization",
     "rmsNormEps:p rmsNormWeightOffset:b postAttentionNorm:b preFeedforwardNorm:b "
     "postFeedforwardNorm:b"},
    {"ffn", "activation:s gatedActivation:b branchMode:s useDoubleWideMlp:b swigluLimit:p?"},
    {"rope",
     "ropeTheta:p ropeLocalTheta:p? ropeScalingType:s? ropeScalingFactor:p ropeLocalScalingType:s? "
     "ropeLocalScalingFactor:p mropeInterleaved:b mropeSection:l? partialRotaryFactor:p? "
     "ropeLocalPartialRotaryFactor:p? ropeFrequencyBaseDim:p? ropeLocalFrequencyBaseDim:p? yarnBetaFast:p? "
     "yarnBetaSlow:p? yarnOriginalMaxPos:p? ropeLocalYarnBetaFast:p? ropeLocalYarnBetaSlow:p? "
     "ropeLocalYarnOriginalMaxPos:p? longropeShortFactor:l? longropeLongFactor:l? longropeOriginalMaxPos:p?"},
    {"output",
     "tieWordEmbeddings:b scaleEmbeddings:b embeddingScale:p? logitInputScale:p embeddingTranspose:b "
     "finalLogitSoftcapping:p? embeddingVocabSize:p? embeddingPostprocessor:o?"},
    {"layerPattern", "type:s globalPattern:s? period:p? offset:n? residualBranchScale:p"},
    {"chatTemplate", "type:s? enabled:b"},
    {"session", "compute:o kvcache:o decodeLoop:o perLayerInputs:o"},
};

bool is_kind(const Json& value, std::string_view kind) {
  if (kind.ends_with("?")) return value.is_null() || is_kind(value, kind.substr(0, kind.size() - 1));
  switch (kind[0]) {
    case 'b': return value.is_boolean();
    case 'n': return value.is_number();
    case 'p': return value.is_number() && value.get<double>() > 0;
    case 's': return value.is_string() && !value.get<std::string>().empty();
    case 'l': return value.is_array() && !value.empty();
    default: return value.is_object();
  }
}

std::vector<std::string> field_faults(const Json& inference) {
  std::vector<std::string> faults;
  for (const auto& [section, fields] : kFields) {
    for (std::string_view rest = fields; !rest.empty();) {
      const std::string_view entry = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(entry.size() + 1, rest.size()));
      const std::string key(entry.substr(0, entry.find(':')));
      const std::string_view kind = entry.substr(key.size() + 1);
      const Json& part = inference[section];
      if (!part.contains(key)) {
        faults.push_back(fmt::format("{}.{} is missing", section, key));
      } else if (!is_kind(part[key], kind)) {
        faults.push_back(fmt::format("{}.{} is {}", section, key, part[key].dump()));
      }
    }
  }
  return faults;
}

void expect_inference(const Json& m) {
  const Json& inference = m["inference"];
  EXPECT_THAT(field_faults(inference), ::testing::IsEmpty());
  const Json &rope = inference["rope"], &output = inference["output"], &session = inference["session"];
  for (const char* key : {"partialRotaryFactor", "ropeLocalPartialRotaryFactor"})
    EXPECT_TRUE(rope[key].is_null() || rope[key].get<double>() <= 1) << key;
  for (const char* key : {"longropeShortFactor", "longropeLongFactor", "longropeOriginalMaxPos"})
    EXPECT_EQ(rope[key].is_null(), rope["ropeScalingType"] != "longrope") << key;
  EXPECT_TRUE(output["embeddingScale"].is_null() || output["scaleEmbeddings"] == false);
  EXPECT_TRUE(inference["layerPattern"]["type"] != "custom" || inference["layerPattern"]["layerTypes"].is_array());
  const std::set<std::string> branches = {"auto", "dense", "moe", "dense_plus_moe"};
  EXPECT_TRUE(branches.contains(inference["ffn"]["branchMode"].get<std::string>()));

  // A norm's flag says that there is a tensor of that name, and the opposite.
  const auto has = [&](const std::string& ending) {
    for (const auto& item : m["tensors"].items()) {
      if (item.key.ends_with(ending)) return true;
    }
    return false;
  };
  for (const auto& [flag, name] : {std::pair("postAttentionNorm", "post_attention_layernorm.weight"),
                                   {"preFeedforwardNorm", "pre_feedforward_layernorm.weight"},
                                   {"postFeedforwardNorm", "post_feedforward_layernorm.weight"}})
    EXPECT_EQ(inference["normalization"][flag].get<bool>(), has(name)) << flag;

  for (const char* key : {"activationDtype", "mathDtype", "accumDtype", "outputDtype"})
    EXPECT_EQ(session["compute"]["defaults"][key], m["quantizationInfo"]["compute"]) << key;
  EXPECT_EQ(session["kvcache"]["layout"], "contiguous");
  EXPECT_EQ(session["kvcache"]["quantization"]["mode"], "none");
  EXPECT_EQ(session["kvcache"]["tiering"]["mode"], "off");
  EXPECT_EQ(session["kvcache"]["tiering"]["compression"]["mode"], "none");
  EXPECT_TRUE(session["kvcache"]["tiering"]["gating"]["mode"].is_string());
  EXPECT_GE(session["decodeLoop"]["batchSize"].get<int>(), 1);
  EXPECT_TRUE(session["decodeLoop"]["disableCommandBatching"].is_boolean());
  for (const char* key : {"materialization", "rowCache", "prefetch", "gpuUpload", "hotCache"})
    EXPECT_TRUE(session["perLayerInputs"].contains(key)) << key;
}

void expect_graph(const Json& m) {
  EXPECT_EQ(m["inference"]["schema"], "doppler.execution/v1");
  const Json& graph = m["inference"]["execution"];
  const std::set<std::string> ops = {
      "embed",     "input_norm", "q_proj",        "k_proj",         "v_proj",    "rope_q",          "rope_k",
      "attention", "o_proj",     "attn_residual", "post_attn_norm", "gate_proj", "up_proj",         "activation",
      "down_proj", "ffn",        "ffn_residual",  "final_norm",     "lm_head",   "lm_head_prefill", "sample"};
  std::set<std::string> used;
  for (const char* part : {"preLayer", "decode", "prefill", "postLayer"}) {
    ASSERT_FALSE(graph[part].empty()) << part;
    for (const Json& step : graph[part]) {
      ASSERT_TRUE(step.is_array() && (step.size() == 2 || step.size() == 3)) << step.dump();
      EXPECT_TRUE(ops.contains(step[0].get<std::string>())) << step.dump();
      EXPECT_TRUE(graph["kernels"].contains(step[1].get<std::string>())) << step.dump();
      used.insert(step[1].get<std::string>());
    }
  }
  for (const auto& [key, kernel] : graph["kernels"].items()) {
    EXPECT_TRUE(used.contains(key)) << key;
    EXPECT_TRUE(kernel["kernel"].get<std::string>().ends_with(".wgsl")) << key;
    EXPECT_FALSE(kernel["entry"].get<std::string>().empty()) << key;
    EXPECT_THAT(kernel["digest"].get<std::string>(), ::testing::MatchesRegex("sha256:[0-9a-f]+"));
    EXPECT_EQ(kernel["digest"].get<std::string>().size(), 7u + 64) << key;
  }
}

// Where tensors and shards lie, and what a model is called.
void expect_places(const Json& m, const fs::path& folder) {
  EXPECT_EQ(m["version"], 1);
  EXPECT_TRUE(m["modelId"].is_string());
  EXPECT_EQ(m["modelType"], "transformer");
  for (const char* key : {"weights", "embeddings", "compute", "layout", "variantTag"})
    EXPECT_TRUE(m["quantizationInfo"][key].is_string()) << key;
  EXPECT_EQ(m["quantizationInfo"]["layout"], "row");
  for (const char* key : {"numLayers", "hiddenSize", "intermediateSize", "numAttentionHeads", "numKeyValueHeads",
                          "headDim", "vocabSize", "maxSeqLen", "ropeTheta"})
    EXPECT_GT(m["architecture"][key].get<double>(), 0) << key;
  ASSERT_TRUE(m.contains("moeConfig"));
  if (const Json& moe = m["moeConfig"]; !moe.is_null()) {
    EXPECT_GT(moe["numExpertsPerToken"].get<int>(), 0);
    EXPECT_LE(moe["numExpertsPerToken"].get<int>(), moe["numExperts"].get<int>());
    EXPECT_TRUE(
        (std::set<std::string>{"mixtral", "gpt-oss", "gemma4"}).contains(moe["expertFormat"].get<std::string>()));
  }
  EXPECT_TRUE((std::set<std::string>{"sha256", "blake3"}).contains(m["hashAlgorithm"].get<std::string>()));
  std::vector<uint64_t> sizes;
  uint64_t total = 0;
  for (const Json& shard : m["shards"]) {
    EXPECT_EQ(shard["index"], sizes.size());
    EXPECT_EQ(shard["offset"], total);
    EXPECT_EQ(shard["filename"], fmt::format("shard_{:05}.bin", sizes.size()));
    EXPECT_EQ(shard["hash"].get<std::string>().size(), 64u);
    EXPECT_EQ(shard["size"], fs::file_size(folder / shard["filename"].get<std::string>()));
    sizes.push_back(shard["size"].get<uint64_t>());
    total += sizes.back();
  }
  EXPECT_EQ(m["totalSize"], total);
  const std::set<std::string> roles = {"embedding", "lm_head", "matmul", "norm", "router", "expert", "other"};
  for (const auto& [name, t] : m["tensors"].items()) {
    EXPECT_TRUE(roles.contains(t["role"].get<std::string>())) << name;
    EXPECT_TRUE(t["dtype"].is_string() && !t["shape"].empty()) << name;
    EXPECT_FALSE(t["group"].get<std::string>().empty()) << name;
    uint64_t bytes = 0;
    const Json one = Json::array(
        {{{"shardIndex", t.value("shard", Json())}, {"offset", t.value("offset", Json())}, {"size", t["size"]}}});
    for (const Json& span : t.contains("spans") ? t["spans"] : one) {
      EXPECT_LE(span["offset"].get<uint64_t>() + span["size"].get<uint64_t>(),
                sizes.at(span["shardIndex"].get<size_t>()))
          << name;
      bytes += span["size"].get<uint64_t>();
    }
    EXPECT_EQ(bytes, t["size"].get<uint64_t>()) << name;
  }
  const Json& eos = m["eos_token_id"];
  EXPECT_TRUE(eos.is_number() || (eos.is_array() && !eos.empty())) << eos.dump();
  if (!m["tokenizer"].is_null()) {
    EXPECT_EQ(m["tokenizer"]["type"], "bundled");
    EXPECT_TRUE(fs::exists(folder / m["tokenizer"]["file"].get<std::string>()));
  }
}

Json manifest_of(const fs::path& folder) { return parse_json(slurp(folder / "manifest.json"), folder.string()); }

void expect_public_rules(const fs::path& folder) {
  const Json m = manifest_of(folder);
  expect_places(m, folder);
  expect_inference(m);
  expect_graph(m);
}

TEST(PublicRules, TheShippedModelKeepsThem) { expect_public_rules(DOPPLER_SOURCE_DIR "/models/tiny"); }

TEST(PublicRules, ArtefactsOfEveryCheckpointKeepThem) {
  for (const auto& entry : fs::directory_iterator(testing::model(""))) {
    if (!fs::exists(entry.path() / "config.json")) continue;
    SCOPED_TRACE(entry.path().filename());
    Scratch scratch;
    ConvertOptions options = testing::with("q4_k_m");
    options.shard_size = 256 << 10;
    convert(entry.path(), scratch / "out", options);
    expect_public_rules(scratch / "out");
    EXPECT_TRUE(LoadedModel::load(scratch / "out").notes.empty());
  }
}

TEST(PublicRules, AFieldThatIsMissingOrOfAnotherKindIsSeen) {
  const Json inference = manifest_of(DOPPLER_SOURCE_DIR "/models/tiny")["inference"];
  for (const auto& [section, fields] : kFields) {
    for (const auto& item : inference[section].items()) {
      if (std::string_view(fields).find(item.key + ":") == std::string_view::npos) continue;
      Json without = inference, other = inference;
      without[section].erase(item.key);
      other[section][item.key] = Json::array();
      EXPECT_THAT(field_faults(without), ::testing::ElementsAre(::testing::HasSubstr(item.key)));
      EXPECT_THAT(field_faults(other), ::testing::ElementsAre(::testing::HasSubstr(item.key)));
    }
  }
}

}  // namespace
}  // namespace doppler
