// Every key of the public format's schema is read, known to change nothing, or refused by its name.
#include "model/manifest_keys.h"

#include <gmock/gmock.h>

#include <functional>
#include <set>

#include "model/model_config.h"
#include "support/model_configs.h"
#include "support/scratch.h"

namespace doppler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// All keys of the schema, as its converter writes them for a model without quirks (but for layers with a window, so
// that what concerns those can be seen).
Json plain_manifest() {
  return parse_json(R"({
    "modelId": "m", "eos_token_id": 1,
    "architecture": {"numLayers": 6, "hiddenSize": 16, "intermediateSize": 32, "numAttentionHeads": 4,
      "numKeyValueHeads": 2, "numGlobalKeyValueHeads": null, "headDim": 8, "globalHeadDim": null, "vocabSize": 100,
      "maxSeqLen": 512, "hiddenSizePerLayerInput": null, "vocabSizePerLayerInput": null, "numKvSharedLayers": 0,
      "ropeTheta": 10000, "rmsNormEps": 1e-5, "linearNumKeyHeads": null, "linearNumValueHeads": null,
      "linearKeyHeadDim": null, "linearValueHeadDim": null, "linearConvKernelDim": null, "linearNormMode": null},
    "moeConfig": {"numExperts": 4, "numExpertsPerToken": 2, "expertFormat": "mixtral", "expertIntermediateSize": null,
      "sharedExperts": [], "expertShardMap": {}, "expertTensors": {}, "expertBytes": 0},
    "inference": {
      "schema": "doppler.execution/v1", "supportsEmbedding": false, "supportsSequence": false, "supportsRerank": false,
      "supportsTranscription": false, "supportsVision": false, "unsupported": null,
      "attention": {"queryPreAttnScalar": 8, "attnLogitSoftcapping": null, "slidingWindow": 5, "queryKeyNorm": false,
        "queryKeyNormType": "rmsnorm", "queryKeyNormAxis": "head", "queryKeyNormLayers": null,
        "queryKeyNormWeightLayers": null, "valueNorm": false, "causal": true, "attentionBias": false,
        "attentionOutputGate": false, "outputGateType": null},
      "normalization": {"type": "rmsnorm", "rmsNormEps": 1e-5, "rmsNormWeightOffset": false, "postAttentionNorm": false,
        "preFeedforwardNorm": true, "postFeedforwardNorm": false, "finalNormBiasTensor": null},
      "ffn": {"activation": "silu", "gatedActivation": true, "branchMode": "auto", "useDoubleWideMlp": false,
        "swigluLimit": null},
      "rope": {"ropeTheta": 10000, "ropeLocalTheta": null, "ropeInterleaved": false, "mropeInterleaved": false,
        "mropeSection": null, "partialRotaryFactor": null, "ropeLocalPartialRotaryFactor": null,
        "ropeFrequencyBaseDim": null, "ropeLocalFrequencyBaseDim": null, "ropeScalingType": null,
        "ropeScalingFactor": 1.0, "ropeLocalScalingType": null, "ropeLocalScalingFactor": 1.0, "yarnBetaFast": null,
        "yarnBetaSlow": null, "yarnOriginalMaxPos": null, "longropeShortFactor": null, "longropeLongFactor": null,
        "longropeOriginalMaxPos": null, "ropeLocalYarnBetaFast": null, "ropeLocalYarnBetaSlow": null,
        "ropeLocalYarnOriginalMaxPos": null},
      "output": {"finalLogitSoftcapping": null, "tieWordEmbeddings": false, "scaleEmbeddings": false,
        "embeddingScale": null, "logitInputScale": 1, "embeddingTranspose": false, "embeddingVocabSize": null,
        "embeddingPostprocessor": null, "lmHeadBiasTensor": null},
      "layerPattern": {"type": "every_n", "globalPattern": null, "period": 3, "offset": 2, "layerTypes": null,
        "residualBranchScale": 1},
      "chatTemplate": {"type": null, "enabled": false}, "diffusionGemma": null, "rerank": null, "sequence": null,
      "pipeline": null, "session": null, "sessionDefaults": null, "execution": null, "largeWeights": null}})",
                    "memory");
}

struct Key {
  const char* path;
  Json value;
  std::vector<Key> with = {};  // other keys that it needs to mean something
};

const std::vector<Key>& keys_that_are_read() {
  static const std::vector<Key> yarn = {{"inference.rope.ropeScalingType", "yarn"},
                                        {"inference.rope.ropeScalingFactor", 4},
                                        {"inference.rope.yarnOriginalMaxPos", 128},
                                        {"inference.rope.ropeLocalScalingType", "yarn"}};
  static const std::vector<Key> longrope = {{"inference.rope.ropeScalingType", "longrope"},
                                            {"inference.rope.longropeShortFactor", {1, 1, 1, 1}},
                                            {"inference.rope.longropeLongFactor", {1, 2, 3, 4}},
                                            {"inference.rope.longropeOriginalMaxPos", 128}};
  static const std::vector<Key> keys = {
      {"architecture.numLayers", 7},
      {"architecture.hiddenSize", 24},
      {"architecture.intermediateSize", 40},
      {"architecture.numAttentionHeads", 8},
      {"architecture.numKeyValueHeads", 4},
      {"architecture.headDim", 16},
      {"architecture.vocabSize", 99},
      {"architecture.maxSeqLen", 256},
      {"architecture.ropeTheta", 20000, {{"inference.rope.ropeTheta", nullptr}}},
      {"architecture.rmsNormEps", 1e-6, {{"inference.normalization.rmsNormEps", nullptr}}},
      {"moeConfig.numExperts", 8},
      {"moeConfig.numExpertsPerToken", 1},
      {"moeConfig.expertFormat", "gpt-oss"},
      {"moeConfig.expertIntermediateSize", 16},
      {"moeConfig.sharedExpertIntermediateSize", 16},
      {"inference.attention.queryPreAttnScalar", 64},
      {"inference.attention.attnLogitSoftcapping", 50},
      {"inference.attention.slidingWindow", 7},
      {"inference.attention.queryKeyNorm", true},
      {"inference.attention.queryKeyNormAxis", "projection"},
      {"inference.attention.attentionBias", true},
      {"inference.normalization.rmsNormEps", 1e-6},
      {"inference.normalization.rmsNormWeightOffset", true},
      {"inference.normalization.postAttentionNorm", true},
      {"inference.normalization.preFeedforwardNorm", false, {{"inference.normalization.postAttentionNorm", true}}},
      {"inference.normalization.postFeedforwardNorm", true},
      {"inference.ffn.activation", "gelu"},
      {"inference.ffn.swigluLimit", 7},
      {"inference.rope.ropeTheta", 20000},
      {"inference.rope.ropeLocalTheta", 20000},
      {"inference.rope.partialRotaryFactor", 0.5},
      {"inference.rope.ropeLocalPartialRotaryFactor", 0.5},
      {"inference.rope.ropeScalingType", "linear"},
      {"inference.rope.ropeScalingFactor", 4, {{"inference.rope.ropeScalingType", "linear"}}},
      {"inference.rope.ropeLocalScalingType", "linear"},
      {"inference.rope.ropeLocalScalingFactor", 4, {{"inference.rope.ropeLocalScalingType", "linear"}}},
      {"inference.rope.yarnBetaFast", 16, yarn},
      {"inference.rope.yarnBetaSlow", 2, yarn},
      {"inference.rope.yarnOriginalMaxPos", 64, yarn},
      {"inference.rope.ropeLocalYarnBetaFast", 16, yarn},
      {"inference.rope.ropeLocalYarnBetaSlow", 2, yarn},
      {"inference.rope.ropeLocalYarnOriginalMaxPos", 64, yarn},
      {"inference.rope.longropeShortFactor", {1, 1, 1, 2}, longrope},
      {"inference.rope.longropeLongFactor", {1, 2, 3, 5}, longrope},
      {"inference.rope.longropeOriginalMaxPos", 64, longrope},
      {"inference.output.finalLogitSoftcapping", 30},
      {"inference.output.tieWordEmbeddings", true},
      {"inference.output.scaleEmbeddings", true},
      {"inference.output.embeddingScale", 12},
      {"inference.output.logitInputScale", 0.25},
      {"inference.output.embeddingVocabSize", 90},
      {"inference.output.embeddingPostprocessor", {{"poolingMode", "mean"}}},
      {"inference.output.embeddingPostprocessor.projections",
       parse_json(R"([{"weightTensor": "dense0", "biasTensor": null, "inputSize": 64, "outputSize": 32,
                       "activation": "identity"}])",
                  "projections"),
       {{"inference.output.embeddingPostprocessor.poolingMode", "mean"}}},
      {"inference.output.embeddingPostprocessor.normalize",
       "l2",
       {{"inference.output.embeddingPostprocessor.poolingMode", "mean"}}},
      {"inference.attention.causal", false, {{"inference.output.embeddingPostprocessor.poolingMode", "last"}}},
      {"inference.layerPattern.type", "uniform"},
      {"inference.layerPattern.globalPattern",
       "odd",
       {{"inference.layerPattern.type", "alternating"}, {"inference.layerPattern.globalPattern", "even"}}},
      {"inference.layerPattern.period", 2},
      {"inference.layerPattern.offset", 0},
      {"inference.layerPattern.layerTypes",
       {"full", "full", "full", "full", "full", "local"},
       {{"inference.layerPattern.type", "custom"},
        {"inference.layerPattern.layerTypes", {"local", "full", "full", "full", "full", "local"}}}},
      {"inference.layerPattern.residualBranchScale", 0.5},
      {"inference.attention.attentionOutputGate", true},
      {"architecture.numGlobalKeyValueHeads", 1},
      {"architecture.globalHeadDim", 16},
      {"architecture.numKvSharedLayers", 2},
      {"inference.ffn.useDoubleWideMlp", true, {{"architecture.numKvSharedLayers", 2}}},
      {"inference.rope.ropeFrequencyBaseDim", 8, {{"inference.rope.partialRotaryFactor", 0.5}}},
      {"inference.rope.ropeLocalFrequencyBaseDim", 8, {{"inference.rope.ropeLocalPartialRotaryFactor", 0.5}}},
      {"architecture.hiddenSizePerLayerInput", 256},
      {"moeConfig.besideFeedForward", true},
      {"inference.attention.valueNorm", true},
      {"inference.layerPattern.layerScale", true},
      {"inference.layerPattern.layerHeadDims", {16, 16, 16, 16, 16, 16}},
      {"inference.layerPattern.layerKeyValueHeads", {1, 0, 0, 0, 0, 4}},
      {"inference.layerPattern.layerFeedForwards", {0, 0, 0, 0, 64, 64}},
      {"inference.layerPattern.layerKeysOf", {-1, 0, -1, -1, -1, 2}},
      {"inference.layerPattern.valuesAreKeys", {2, 5}},
      {"architecture.linearConvKernelDim", 4},
      {"architecture.linearNumKeyHeads", 16},
      {"architecture.linearNumValueHeads", 16},
      {"architecture.linearKeyHeadDim", 128},
      {"architecture.linearValueHeadDim", 128},
  };
  return keys;
}

const std::vector<Key>& keys_that_are_refused() {
  static const std::vector<Key> keys = {
      {"architecture.linearNormMode", "per_head"},
      {"moeConfig.sharedExperts", {0}},
      {"inference.unsupported", {{"code", "unverified"}}},
      {"inference.attention.queryKeyNormType", "layernorm"},
      {"inference.attention.queryKeyNormLayers", {0, 1}},
      {"inference.attention.queryKeyNormWeightLayers", {0, 1}},
      {"inference.attention.outputGateType", "swish"},
      {"inference.normalization.type", "layernorm"},
      {"inference.normalization.finalNormBiasTensor", "norm.bias"},
      {"inference.ffn.gatedActivation", false},
      {"inference.ffn.branchMode", "dense_plus_moe"},
      {"inference.rope.ropeInterleaved", true},
      {"inference.output.embeddingTranspose", true},
      {"inference.output.embeddingPostprocessor.poolingMode", "max"},
      {"inference.output.embeddingPostprocessor.pooling", "mean"},
      {"inference.output.embeddingPostprocessor.includePrompt", false},
      {"inference.output.lmHeadBiasTensor", "lm_head.bias"},
      {"inference.diffusionGemma", {{"canvasLength", 256}}},
      {"inference.sequence", {{"alphabet", "nucleotide"}}},
      {"inference.pipeline", {{"steps", 1}}},
  };
  return keys;
}

const std::vector<Key>& keys_without_effect() {
  static const std::vector<Key> keys = {
      {"architecture.vocabSizePerLayerInput", 262144},
      {"moeConfig.expertShardMap", {{"0_0", {1}}}},
      {"moeConfig.expertTensors", {{"0_0", {"a"}}}},
      {"moeConfig.expertBytes", 5},
      {"inference.schema", "another"},
      {"inference.rope.mropeInterleaved", true},
      {"inference.rope.mropeSection", {2, 1, 1}},
      {"inference.supportsEmbedding", true},
      {"inference.supportsSequence", true},
      {"inference.supportsRerank", true},
      {"inference.supportsTranscription", true},
      {"inference.supportsVision", true},
      {"inference.chatTemplate.type", "chatml"},
      {"inference.chatTemplate.enabled", true},
      {"inference.rerank", {{"trueTokenId", 5}}},
      {"inference.session", {{"kvcache", {{"layout", "paged"}}}}},
      {"inference.sessionDefaults", {{"a", 1}}},
      {"inference.execution", {{"kernels", {{"matmul", {{"digest", "sha256:00"}}}}}}},
      {"inference.largeWeights", {{"gpuResidentOverrides", Json::array()}}},
  };
  return keys;
}

void set(Json& manifest, std::string_view path, const Json& value) {
  Json* at = &manifest;
  for (size_t dot; (dot = path.find('.')) != std::string_view::npos; path.remove_prefix(dot + 1)) {
    at = &(*at)[path.substr(0, dot)];
  }
  (*at)[path] = value;
}

Json with(const std::vector<Key>& keys) {
  Json manifest = plain_manifest();
  for (const Key& key : keys) set(manifest, key.path, key.value);
  return manifest;
}

TEST(ManifestKeys, WhatIsReadChangesTheModel) {
  for (const Key& key : keys_that_are_read()) {
    SCOPED_TRACE(key.path);
    Json manifest = with(key.with);
    const ModelConfig before = read_model_config(manifest, "m");
    set(manifest, key.path, key.value);
    EXPECT_FALSE(read_model_config(manifest, "m") == before);
  }
}

TEST(ManifestKeys, WhatIsNotComputedIsRefusedByName) {
  for (const Key& key : keys_that_are_refused()) {
    EXPECT_THAT(testing::sentence([&] { read_model_config(with({key}), "manifest.json"); }),
                AllOf(HasSubstr(std::string("manifest.json: ") + key.path), HasSubstr(brief(key.value))));
  }
}

TEST(ManifestKeys, WhatConcernsOthersChangesNothing) {
  const ModelConfig plain = read_model_config(plain_manifest(), "m");
  for (const Key& key : keys_without_effect()) {
    EXPECT_EQ(read_model_config(with({key}), "m"), plain) << key.path;
  }
}

TEST(ManifestKeys, EveryKeyOfTheSchemaIsTried) {
  std::set<std::string> tried;
  for (const auto* keys : {&keys_that_are_read(), &keys_that_are_refused(), &keys_without_effect()}) {
    for (const Key& key : *keys) EXPECT_TRUE(tried.insert(key.path).second) << key.path;
  }
  const std::function<void(const Json&, const std::string&)> walk = [&](const Json& object, const std::string& path) {
    for (const auto& [key, value] : object.items()) {
      const std::string name = path + "." + key;
      if (value.is_object() && !value.empty())
        walk(value, name);
      else
        EXPECT_TRUE(tried.contains(name)) << name;
    }
  };
  const Json manifest = plain_manifest();
  for (const char* part : {"architecture", "moeConfig", "inference"}) walk(manifest[part], part);
}

TEST(ManifestKeys, VectorsThatAreMadeOtherwiseAreRefused) {
  const std::pair<const char*, const char*> kOthers[] = {
      {"normalize", R"({"poolingMode": "mean", "normalize": "l1"})"},
      {"projections.activation",
       R"({"poolingMode": "mean", "projections": [{"activation": "tanh", "outputSize": 8}]})"},
      {"projections.biasTensor", R"({"poolingMode": "last", "projections": [{"biasTensor": "b", "outputSize": 8}]})"}};
  for (const auto& [key, text] : kOthers) {
    const Json value = parse_json(text, key);
    EXPECT_THAT(testing::sentence([&] {
                  read_model_config(with({{"inference.output.embeddingPostprocessor", value}}), "manifest.json");
                }),
                AllOf(HasSubstr("does not compute"), HasSubstr(std::string("embeddingPostprocessor.") + key)));
  }
}

TEST(ManifestKeys, UnknownKeysAreRefusedUnlessTheyAreNull) {
  for (const char* part : {"architecture", "moeConfig", "inference", "inference.attention", "inference.normalization",
                           "inference.ffn", "inference.rope", "inference.output", "inference.layerPattern"}) {
    const std::string path = std::string(part) + ".madeUpYesterday";
    EXPECT_THAT(
        testing::sentence([&] {
          read_model_config(with({{path.c_str(), 0.5}}), "manifest.json");
        }),
        AllOf(HasSubstr("does not know"), HasSubstr("manifest.json: " + path), HasSubstr("0.5"), HasSubstr("Convert")));
    EXPECT_EQ(read_model_config(with({{path.c_str(), nullptr}}), "m"), read_model_config(plain_manifest(), "m"));
  }
}

// Words of the format for what a list of ours says layer by layer.
TEST(ManifestKeys, TheLastLayersReadTheKeysOfTheLastOfTheirKindBeforeThem) {
  const ModelConfig c = read_model_config(with({{"architecture.numKvSharedLayers", 3},
                                                {"inference.ffn.useDoubleWideMlp", true},
                                                {"architecture.globalHeadDim", 16},
                                                {"architecture.numGlobalKeyValueHeads", 4}}),
                                          "m");
  const bool global[] = {false, false, true, false, false, true};
  const int keys_of[] = {-1, -1, -1, 1, 1, 2}, ffn[] = {32, 32, 32, 64, 64, 64};
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(c.layer(i).keys_of, keys_of[i]) << i;
    EXPECT_EQ(c.ffn_of(i), ffn[i]) << i;
    EXPECT_EQ(c.head_dim_of(i), global[i] ? 16 : 8) << i;
    EXPECT_EQ(c.kv_heads_of(i), global[i] ? 4 : 2) << i;
  }
  for (const int shared : {0, 6}) {
    const std::string text = testing::sentence([&] {
      read_model_config(with({{"architecture.numKvSharedLayers", shared}, {"inference.ffn.useDoubleWideMlp", true}}),
                        "m");
    });
    EXPECT_THAT(text, AllOf(HasSubstr("numKvSharedLayers"), HasSubstr(std::to_string(shared)))) << shared;
  }
}

TEST(ManifestKeys, FrequenciesOfAWholeHeadTurnItsFirstPairs) {
  const ModelConfig c = read_model_config(
      with({{"inference.rope.partialRotaryFactor", 0.5}, {"inference.rope.ropeFrequencyBaseDim", 8}}), "m");
  EXPECT_EQ(c.ropes[0].scaling, RopeScaling::kProportional);
  EXPECT_EQ(c.ropes[0].rotated, 0.5);
  const ModelConfig slice = read_model_config(
      with({{"inference.rope.partialRotaryFactor", 0.5}, {"inference.rope.ropeFrequencyBaseDim", 4}}), "m");
  EXPECT_EQ(slice.ropes[0].scaling, RopeScaling::kNone) << "those of the dims that turn are the usual ones";
}

TEST(ManifestKeys, ArtefactsThatWereWrittenEarlierAreStillRead) {
  int seeds = 0;
  for (const auto& item : std::filesystem::directory_iterator(DOPPLER_SOURCE_DIR "/tests/fuzz/manifest_seeds")) {
    SCOPED_TRACE(item.path().string());
    const Json manifest = parse_json(testing::slurp(item.path()), item.path().string());
    EXPECT_GT(read_model_config(manifest, "m").layer_count(), 0);
    ++seeds;
  }
  EXPECT_GE(seeds, 3);
  EXPECT_EQ(read_model_config(with({{"moeConfig.expertFormat", "mxfp4"}}), "m"),
            read_model_config(with({{"moeConfig.expertFormat", "gpt-oss"}}), "m"));
}

TEST(ManifestKeys, WordsThatNobodyKnowsAreRefused) {
  for (const Key& key : std::vector<Key>{{"inference.ffn.activation", "relu"},
                                         {"inference.attention.queryKeyNormAxis", "both"},
                                         {"inference.rope.ropeScalingType", "dynamic"},
                                         {"inference.rope.ropeScalingFactor", 4},
                                         {"inference.rope.ropeLocalScalingFactor", 4},
                                         {"inference.ffn.branchMode", "dense"},
                                         {"inference.layerPattern.type", "random"},
                                         {"inference.rope.ropeFrequencyBaseDim", 4},
                                         {"inference.rope.ropeLocalFrequencyBaseDim", 4},
                                         {"inference.rope.mropeSection", {4, 1}},
                                         {"inference.attention.outputGateType", "swish"},
                                         {"moeConfig.expertFormat", "dbrx"}}) {
    EXPECT_THAT(testing::sentence([&] { read_model_config(with({key}), "m"); }),
                HasSubstr(key.value.is_string() ? key.value.text() : "4"))
        << key.path;
  }
}

}  // namespace
}  // namespace doppler
