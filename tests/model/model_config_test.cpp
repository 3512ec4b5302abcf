#include "model/model_config.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include "base/error.h"
#include "support/model_configs.h"
#include "support/scratch.h"

namespace doppler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ModelConfig, SurvivesTheManifest) {
  for (const ModelConfig& config :
       {testing::plain_config(), testing::quirky_config(), testing::expert_config(), testing::multiplied_config(),
        testing::sparse_config(), testing::conv_config(), testing::delta_config(), testing::delta_expert_config(),
        testing::layer_input_config(), testing::beside_config(), testing::embedding_config()}) {
    Json manifest;
    manifest["modelId"] = config.id;
    write_model_config(config, manifest);
    const Json reread = parse_json(manifest.dump(), "memory");
    EXPECT_EQ(read_model_config(reread, "memory"), config) << manifest.dump(1);
  }
}

TEST(ModelConfig, RefusesNumbersThatAManifestCouldNotHold) {
  const auto refused = [](auto change) {
    ModelConfig config = testing::quirky_config();
    change(config);
    EXPECT_THROW(check(config, "memory"), Failure);
  };
  const float inf = std::numeric_limits<float>::infinity();
  refused([](ModelConfig& c) { c.attn_softcap = -1; });
  refused([](ModelConfig& c) { c.logit_softcap = -30; });
  refused([](ModelConfig& c) { c.attn_scale = 0; });
  refused([](ModelConfig& c) { c.swiglu_limit = -7; });
  refused([inf](ModelConfig& c) { c.embed_scale = inf; });
  refused([inf](ModelConfig& c) { c.norm_offset = -inf; });
}

TEST(ModelConfig, ReadsTheFieldsOfThePublicFormat) {
  const Json manifest = parse_json(R"({
    "modelId": "m", "eos_token_id": [1, 106],
    "architecture": {"numLayers": 7, "hiddenSize": 16, "intermediateSize": 32, "numAttentionHeads": 4,
      "numKeyValueHeads": 1, "headDim": 8, "vocabSize": 107, "maxSeqLen": 512, "ropeTheta": 1000000},
    "moeConfig": null,
    "inference": {
      "attention": {"queryPreAttnScalar": 256, "attnLogitSoftcapping": null, "slidingWindow": 512, "queryKeyNorm": true, "causal": true},
      "normalization": {"rmsNormEps": 1e-6, "rmsNormWeightOffset": true, "postAttentionNorm": true, "preFeedforwardNorm": true, "postFeedforwardNorm": true},
      "ffn": {"activation": "gelu", "gatedActivation": true, "swigluLimit": null},
      "rope": {"ropeTheta": 1000000, "ropeLocalTheta": 10000, "ropeScalingType": null},
      "output": {"tieWordEmbeddings": true, "scaleEmbeddings": true, "finalLogitSoftcapping": null},
      "layerPattern": {"type": "every_n", "period": 6, "offset": 5}}})",
                                   "memory");
  const ModelConfig c = read_model_config(manifest, "memory");
  EXPECT_EQ(c.attn_scale, 1.f / 16);
  EXPECT_EQ(c.embed_scale, 4.f);
  EXPECT_EQ(c.norm_offset, 1.f);
  EXPECT_EQ(c.eos_ids, (std::vector<int32_t>{1, 106}));
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(c.layers[static_cast<size_t>(i)], (i == 5 ? LayerConfig{0, 0} : LayerConfig{512, 1})) << i;
  }
}

TEST(ModelConfig, RefusesNumbersThatDescribeNoModel) {
  const auto refused = [](auto&& change) {
    ModelConfig config = testing::plain_config();
    change(config);
    try {
      check(config, "here");
    } catch (const Failure& failure) {
      return failure.error.where == "here";
    }
    return false;
  };
  EXPECT_FALSE(refused([](ModelConfig&) {}));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.hidden = 0; }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.heads = 3; }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.head_dim = 7; }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.layers.clear(); }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.layers[0].rope = 1; }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.experts = 4; }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.ropes[0].rotated = 1.5; }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.ropes[0].rotated = 0.4; })) << "an odd number of dims";
  EXPECT_TRUE(refused([](ModelConfig& c) { c.ropes[0].scaling = RopeScaling::kLongRope; })) << "no factors";
  EXPECT_TRUE(refused([](ModelConfig& c) { c.ropes[0].theta = std::nan(""); }));
}

std::string refusal(const ModelConfig& config, const std::function<void(Json&)>& change) {
  Json manifest;
  write_model_config(config, manifest);
  change(manifest);
  return message_of([&] { read_model_config(manifest, "manifest.json"); });
}

TEST(ModelConfig, RefusesVectorsThatCannotBeMade) {
  const auto refused = [](auto change) {
    ModelConfig config = testing::embedding_config();
    change(config);
    return testing::sentence([&] { check(config, "m"); });
  };
  EXPECT_THAT(refused([](ModelConfig& c) { c.embedding = {}; }), HasSubstr("how it makes a vector"));
  EXPECT_THAT(refused([](ModelConfig& c) { c.embedding.pooling = Pooling::kNone; }), HasSubstr("dense layers"));
  EXPECT_THAT(refused([](ModelConfig& c) { c.embedding.dense[1] = 0; }), HasSubstr("width of a dense layer"));
  EXPECT_THAT(refused([](ModelConfig& c) {
                c.conv_kernel = 3;
                c.layers[1].mixer = Mixer::kShortConv;
              }),
              HasSubstr("goes on from a state"));
}

TEST(ModelConfig, TokensOutsideTheVocabularyAreRefusedByName) {
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    for (const Json& id : {Json(50), Json(-1), Json(1ull << 32), Json(~0ull), Json(1.5), Json("1"), Json(true)}) {
      EXPECT_THAT(refusal(testing::plain_config(), [&](Json& m) { m[key] = id; }),
                  AllOf(HasSubstr(std::string(key) + " is no token"), HasSubstr("0 to 49")))
          << id.dump();
    }
    EXPECT_EQ(refusal(testing::plain_config(), [&](Json& m) { m[key] = 49; }), "");
    EXPECT_EQ(refusal(testing::plain_config(), [&](Json& m) { m[key] = nullptr; }), "");
  }
  EXPECT_THAT(refusal(testing::plain_config(),
                      [](Json& m) {
                        m["eos_token_id"] = {1, 4294967297};
                      }),
              HasSubstr("eos_token_id is no token"));
  ModelConfig config = testing::plain_config();
  config.eos_ids = {1, 50};
  EXPECT_THAT(message_of([&] { check(config, "here"); }), HasSubstr("ends an answer is no token"));
  config = testing::plain_config();
  config.bos_id = 50;
  EXPECT_THAT(message_of([&] { check(config, "here"); }), HasSubstr("begins a text is no token"));
}

// Which layers are global, as a word of g and l; the sentence where the pattern is refused.
std::string layers_of(const Json& pattern, int window = 5) {
  Json manifest;
  ModelConfig config = testing::plain_config();
  config.layers.resize(4);
  write_model_config(config, manifest);
  manifest["inference"]["attention"]["slidingWindow"] = window > 0 ? Json(window) : Json();
  manifest["inference"]["layerPattern"] = pattern;
  std::string out;
  const std::string fault = message_of([&] {
    for (const LayerConfig& layer : read_model_config(manifest, "m").layers) out += layer.window == 0 ? 'g' : 'l';
  });
  return fault.empty() ? out : fault;
}

TEST(ModelConfig, ReadsThePatternsOfThePublicFormat) {
  EXPECT_EQ(layers_of({{"type", "uniform"}}), "llll");
  EXPECT_EQ(layers_of({{"type", "uniform"}}, 0), "gggg");
  EXPECT_EQ(layers_of({{"type", "alternating"}, {"globalPattern", "even"}}), "glgl");
  EXPECT_EQ(layers_of({{"type", "alternating"}, {"globalPattern", "odd"}}), "lglg");
  EXPECT_EQ(layers_of({{"type", "every_n"}, {"period", 3}, {"offset", 2}}), "llgl");
  EXPECT_EQ(layers_of({{"type", "every_n"}, {"period", 2}, {"offset", nullptr}}), "glgl");
  const Json types = {"sliding_attention", "full_attention", "sliding_attention", "full_attention"};
  EXPECT_EQ(layers_of({{"type", "custom"}, {"layerTypes", types}}), "lglg");
  EXPECT_EQ(layers_of({{"type", "custom"}, {"layers", {"global", "local", "local", "local"}}}), "glll");
  EXPECT_THAT(layers_of({{"type", "alternating"}}), HasSubstr("globalPattern"));
  EXPECT_THAT(layers_of({{"type", "alternating"}, {"globalPattern", "both"}}), HasSubstr("both"));
  EXPECT_THAT(layers_of({{"type", "custom"}, {"layerTypes", {"full_attention"}}}), HasSubstr("every layer"));
}

TEST(ModelConfig, UnknownWordsInALayerPatternAreRefusedByName) {
  for (const char* kind : {"linear", "mamba", "Local", ""}) {
    EXPECT_THAT(layers_of({{"type", "custom"}, {"layerTypes", {"full_attention", "sliding_attention", "full", kind}}}),
                AllOf(HasSubstr("unknown kind of layer"), HasSubstr("layerTypes[3]"), HasSubstr(kind)));
  }
  EXPECT_THAT(layers_of({{"type", "custom"}, {"layers", {"global", "local", "local", 0}}}), HasSubstr("layers[3]"));
}

TEST(ModelConfig, LocalLayersOfThePublicFormatShareTheGlobalThetaButNotItsScaling) {
  Json manifest;
  ModelConfig config = testing::expert_config();
  write_model_config(config, manifest);
  EXPECT_EQ(read_model_config(manifest, "m").ropes.size(), 1u);
  const Json written = manifest["inference"]["rope"];
  for (const auto& item : written.items()) {
    if (item.key.starts_with("ropeLocal")) manifest["inference"]["rope"][item.key] = nullptr;
  }
  const ModelConfig read = read_model_config(manifest, "m");
  ASSERT_EQ(read.ropes.size(), 2u);
  EXPECT_EQ(read.ropes[1], (RopeConfig{.theta = 150000}));
  EXPECT_EQ(read.layers[0].rope, 1);
}

TEST(RopeTable, PlainFrequenciesArePowersOfTheta) {
  const RopeTable table = make_rope_table({.theta = 10000}, 8);
  ASSERT_EQ(table.inv_freq.size(), 4u);
  EXPECT_FLOAT_EQ(table.inv_freq[0], 1);
  EXPECT_FLOAT_EQ(table.inv_freq[1], 0.1f);
  EXPECT_FLOAT_EQ(table.inv_freq[3], 0.001f);
  EXPECT_EQ(table.magnitude, 1);
}

TEST(RopeTable, Llama3KeepsShortWavesStretchesLongOnesAndBlendsBetween) {
  const RopeConfig rope{.theta = 500000, .scaling = RopeScaling::kLlama3, .factor = 8, .original_context = 64};
  const RopeTable scaled = make_rope_table(rope, 32), plain = make_rope_table({.theta = 500000}, 32);
  EXPECT_FLOAT_EQ(scaled.inv_freq[0], plain.inv_freq[0]);        // wavelength 6.3 < 64/4
  EXPECT_FLOAT_EQ(scaled.inv_freq[15], plain.inv_freq[15] / 8);  // far beyond the context
  EXPECT_LT(scaled.inv_freq[2], plain.inv_freq[2]);              // wavelength 32: between
  EXPECT_GT(scaled.inv_freq[2], plain.inv_freq[2] / 8);
}

TEST(RopeTable, YarnStretchesFromTheSlowEndAndRaisesTheMagnitude) {
  const RopeConfig rope{
      .theta = 150000, .scaling = RopeScaling::kYarn, .factor = 32, .truncate = false, .original_context = 4096};
  const RopeTable scaled = make_rope_table(rope, 64), plain = make_rope_table({.theta = 150000}, 64);
  EXPECT_FLOAT_EQ(scaled.inv_freq[0], plain.inv_freq[0]);
  EXPECT_FLOAT_EQ(scaled.inv_freq[31], plain.inv_freq[31] / 32);
  EXPECT_FLOAT_EQ(scaled.magnitude, 0.1f * std::log(32.f) + 1);
}

TEST(RopeTable, APartOfAHeadTurnsByTheFrequenciesOfThatPart) {
  const RopeTable part = make_rope_table({.theta = 10000, .rotated = 0.75}, 128), whole = make_rope_table({}, 96);
  EXPECT_EQ(rotary_dims({.rotated = 0.75}, 128), 96);
  EXPECT_EQ(part.inv_freq, whole.inv_freq);
  EXPECT_TRUE(make_rope_table({.rotated = 0}, 128).inv_freq.empty());
}

TEST(RopeTable, LongRopeTakesItsFactorsByTheContext) {
  RopeConfig rope{.theta = 10000, .scaling = RopeScaling::kLongRope, .factor = 32, .original_context = 4096};
  rope.short_factors = {1, 2};
  rope.long_factors = {4, 8};
  const RopeTable plain = make_rope_table({}, 4), near = make_rope_table(rope, 4, 4096),
                  far = make_rope_table(rope, 4, 4097);
  EXPECT_FLOAT_EQ(near.inv_freq[1], plain.inv_freq[1] / 2);
  EXPECT_FLOAT_EQ(far.inv_freq[0], plain.inv_freq[0] / 4);
  EXPECT_NEAR(near.magnitude, 1.1902, 1e-4);
  EXPECT_EQ(near.magnitude, far.magnitude);
}

}  // namespace
}  // namespace doppler
