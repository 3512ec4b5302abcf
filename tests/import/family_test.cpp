#include "import/family.h"

#include <gmock/gmock.h>

#include <cmath>
#include <ctime>
#include <functional>

#include "base/files.h"
#include "import/tensor_map.h"
#include "support/scratch.h"

namespace doppler {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty, ::testing::SizeIs;

Json config_of(const std::string& model) {
  const std::string path = DOPPLER_TEST_DATA "/models/" + model + "/config.json";
  return parse_json(read_text_file(path), path);
}

ModelConfig read(const Json& hf) { return config_from_hf(family_for(hf, "config.json"), hf, "config.json"); }
ModelConfig read(const char* model) { return read(config_of(model)); }

std::vector<int> windows(const ModelConfig& config) {
  std::vector<int> out;
  for (const LayerConfig& layer : config.layers) out.push_back(layer.window);
  return out;
}

TEST(Families, EveryFileInTheProgramIsOneThatLoads) {
  EXPECT_THAT(families(), SizeIs(::testing::Ge(5u)));
  for (const Family& family : families()) {
    EXPECT_EQ(family.file, "families/" + family.name + ".json");
    EXPECT_THAT(layouts_of(family), ::testing::Not(IsEmpty()));
  }
  for (const Preset& preset : presets()) {
    const ModelConfig config = config_from_hf(*preset.family, *preset.config, preset.name);
    check(config, preset.name);
    EXPECT_EQ(family_for(*preset.config, preset.name).name, preset.family->name);
    for (const WeightUse& use : weights_of(build_plan(config))) {
      EXPECT_NE(rule_for(*preset.family, use.slot, layouts_of(*preset.family).front()).name, "") << use.slot;
    }
  }
}

TEST(Families, SandwichNormsAndTwoRopesFromTheOldDialect) {
  const ModelConfig c = read("gemma3-a");
  EXPECT_EQ(c.hidden, 160);
  EXPECT_EQ(c.ffn, 320);
  EXPECT_EQ(c.heads, 4);
  EXPECT_EQ(c.kv_heads, 2);
  EXPECT_EQ(c.head_dim, 32);
  EXPECT_EQ(c.vocab, 320);
  EXPECT_EQ(c.norm_offset, 1);
  EXPECT_EQ(c.embed_scale, std::sqrt(160.f));
  EXPECT_EQ(c.attn_scale, static_cast<float>(1 / std::sqrt(40.0))) << "query_pre_attn_scalar, not head_dim";
  EXPECT_TRUE(c.qk_norm && c.post_attn_norm && c.post_ffn_norm && c.tied_output);
  EXPECT_FALSE(c.qkv_bias || c.o_bias || c.attn_sinks);
  EXPECT_EQ(c.activation, Activation::kGeluTanh);
  EXPECT_THAT(windows(c), ElementsAre(8, 8, 8, 8, 8, 0, 8));
  ASSERT_THAT(c.ropes, SizeIs(2));
  EXPECT_EQ(c.ropes[0].theta, 1e6);
  EXPECT_EQ(c.ropes[1].theta, 1e4);
  EXPECT_EQ(c.layers[5].rope, 0);
  EXPECT_EQ(c.layers[6].rope, 1);
  EXPECT_THAT(c.eos_ids, ElementsAre(1, 106));
  EXPECT_EQ(c.bos_id, 2);
}

TEST(Families, BothDialectsGiveTheSameModel) {
  Json now = config_of("gemma3-b");
  Json before = now;
  for (const char* key : {"layer_types", "rope_parameters", "_sliding_window_pattern"}) before.erase(key);
  before["sliding_window_pattern"] = 6;
  before["rope_theta"] = 1000000;
  before["rope_local_base_freq"] = 10000;
  before["rope_scaling"] = nullptr;
  EXPECT_EQ(read(now), read(before));
  EXPECT_THAT(windows(read(now)), ElementsAre(6, 6, 6, 6, 6, 0));

  now["rope_parameters"]["full_attention"] = {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}};
  before["rope_scaling"] = {{"type", "linear"}, {"factor", 8.0}};
  EXPECT_EQ(read(now), read(before));
  EXPECT_EQ(read(now).ropes[0].scaling, RopeScaling::kLinear);
  EXPECT_EQ(read(now).ropes[1].scaling, RopeScaling::kNone) << "only global layers are stretched";
}

TEST(Families, SingleRopeFamiliesReadRopeParametersToo) {
  Json now = config_of("llama-a");
  now["rope_parameters"] = now["rope_scaling"];
  now["rope_parameters"]["rope_theta"] = now["rope_theta"];
  now.erase("rope_scaling");
  now.erase("rope_theta");
  EXPECT_EQ(read(now), read("llama-a"));
  now["rope_parameters"] = {{"full_attention", {{"rope_theta", 5.0}}}};
  EXPECT_THAT(sentence([&] { read(now); }), HasSubstr("unknown to the family"));
}

TEST(Families, SoftCapsAndAlternatingWindows) {
  const ModelConfig c = read("gemma2-a");
  EXPECT_EQ(c.attn_softcap, 50);
  EXPECT_EQ(c.logit_softcap, 30);
  EXPECT_FALSE(c.qk_norm);
  EXPECT_THAT(windows(c), ElementsAre(6, 0, 6, 0));
  ASSERT_THAT(c.ropes, SizeIs(1));
  Json hf = config_of("gemma2-a");
  hf.erase("attn_logit_softcapping");
  EXPECT_EQ(read(hf).attn_softcap, 50) << "absent: the family's default";
  hf["attn_logit_softcapping"] = nullptr;
  EXPECT_EQ(read(hf).attn_softcap, 0) << "null: none";
}

TEST(Families, ExpertsSinksBiasesAndYarn) {
  const ModelConfig c = read("gptoss-a");
  EXPECT_EQ(c.experts, 8);
  EXPECT_EQ(c.experts_per_token, 4);
  EXPECT_EQ(c.ffn, 96);
  EXPECT_TRUE(c.attn_sinks && c.qkv_bias && c.o_bias);
  EXPECT_FALSE(c.tied_output);
  EXPECT_EQ(c.activation, Activation::kClampedSwiglu);
  EXPECT_EQ(c.swiglu_limit, 7);
  EXPECT_EQ(c.swiglu_alpha, 1.702f);
  EXPECT_EQ(c.norm_eps, 1e-5f);
  EXPECT_THAT(windows(c), ElementsAre(6, 0, 6, 0));
  ASSERT_THAT(c.ropes, SizeIs(1));
  EXPECT_EQ(c.ropes[0].scaling, RopeScaling::kYarn);
  EXPECT_EQ(c.ropes[0].factor, 32);
  EXPECT_EQ(c.ropes[0].original_context, 4096);
  EXPECT_FALSE(c.ropes[0].truncate);
}

TEST(Families, HeadSizeAndRopeScalingFromTheConfig) {
  const ModelConfig llama = read("llama-a");
  EXPECT_EQ(llama.head_dim, 32) << "hidden / heads where the config is silent";
  EXPECT_EQ(llama.ropes[0].scaling, RopeScaling::kLlama3);
  EXPECT_EQ(llama.ropes[0].low_freq_factor, 1);
  EXPECT_EQ(llama.ropes[0].high_freq_factor, 4);
  EXPECT_EQ(llama.ropes[0].original_context, 64);
  const ModelConfig qwen = read("qwen3-a");
  EXPECT_EQ(qwen.head_dim, 96);
  EXPECT_TRUE(qwen.qk_norm && qwen.tied_output);
  EXPECT_EQ(qwen.norm_offset, 0);
  EXPECT_EQ(qwen.embed_scale, 1);
}

TEST(Families, TheTextPartOfAMultiModalConfigIsFound) {
  const Json text = config_of("gemma3-a");
  Json outer = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                {"model_type", "gemma3"},
                {"vision_config", {{"hidden_size", 3}}},
                {"mm_tokens_per_image", 256},
                {"eos_token_id", {1, 7}},
                {"text_config", text}};
  outer["text_config"].erase("eos_token_id");
  const ModelConfig c = read(outer);
  EXPECT_EQ(c.hidden, 160);
  EXPECT_THAT(c.eos_ids, ElementsAre(1, 7));
  outer["audio_config"] = {{"x", 1}};
  EXPECT_THAT(sentence([&] { read(outer); }), HasSubstr("audio_config"));
}

TEST(Families, UnknownFamiliesAreNamedWithTheKnownOnes) {
  const std::string text = sentence([] { family_for(Json{{"architectures", {"MambaForCausalLM"}}}, "config.json"); });
  EXPECT_THAT(text, HasSubstr("MambaForCausalLM"));
  EXPECT_THAT(text, HasSubstr("Gemma3ForCausalLM"));
  EXPECT_NE(sentence([] { family_for(Json::object(), "config.json"); }), "");
}

TEST(Families, AKeyThatMayChangeTheMathematicsStops) {
  Json hf = config_of("gemma3-a");
  hf["residual_multiplier"] = 0.22;
  EXPECT_THAT(sentence([&] { read(hf); }), HasSubstr("residual_multiplier = 0.22"));
  EXPECT_NO_THROW(config_from_hf(family_for(hf, ""), hf, "", {"residual_multiplier"}));
  hf["residual_multiplier"] = nullptr;
  EXPECT_NO_THROW(read(hf));
}

TEST(Families, ValuesTheFamilyCannotComputeStop) {
  const auto changed = [](const char* model, const char* key, Json value) {
    Json hf = config_of(model);
    hf[key] = std::move(value);
    return sentence([&] { read(hf); });
  };
  EXPECT_THAT(changed("gemma3-a", "hidden_activation", "relu"), HasSubstr("relu"));
  EXPECT_THAT(changed("gemma3-a", "use_bidirectional_attention", true), HasSubstr("use_bidirectional_attention"));
  EXPECT_THAT(changed("gemma3-a", "rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2}}), HasSubstr("dynamic"));
  EXPECT_THAT(changed("gemma3-a", "rope_scaling", {{"rope_type", "yarn"}, {"factor", 2}, {"finetuned", true}}),
              HasSubstr("finetuned"));
  EXPECT_THAT(changed("gemma3-a", "rope_scaling", {{"rope_type", "linear"}}), HasSubstr("factor"));
  EXPECT_THAT(changed("gemma3-a", "rope_scaling", 7), HasSubstr("object"));
  EXPECT_THAT(changed("llama-a", "mlp_bias", true), HasSubstr("mlp_bias"));
  EXPECT_THAT(changed("qwen3-a", "use_sliding_window", true), HasSubstr("use_sliding_window"));
  EXPECT_THAT(changed("llama-a", "quantization_config", {{"quant_method", "aqlm"}}), HasSubstr("got aqlm"));
  EXPECT_THAT(changed("gptoss-a", "layer_types", {"full_attention"}), HasSubstr("expected 4, got 1"));
  EXPECT_THAT(changed("gptoss-a", "layer_types", {"a", "b", "c", "d"}), HasSubstr("got a"));
  EXPECT_THAT(changed("llama-a", "hidden_size", "big"), HasSubstr("wrong type"));
  EXPECT_THAT(changed("llama-a", "hidden_size", 128.5), HasSubstr("whole number"));
  EXPECT_THAT(changed("llama-a", "hidden_size", -1), HasSubstr("out of range"));
  EXPECT_THAT(changed("llama-a", "num_hidden_layers", 1000000), HasSubstr("out of range"));
  EXPECT_THAT(changed("llama-a", "num_attention_heads", 0), HasSubstr("finite"));
  EXPECT_THAT(changed("llama-a", "eos_token_id", "x"), HasSubstr("token id"));
  Json hf = config_of("llama-a");
  hf.erase("hidden_size");
  EXPECT_THAT(sentence([&] { read(hf); }), HasSubstr("hidden_size"));
}

TEST(Families, AFamilyOfTheUsersIsReadFromAFile) {
  testing::Scratch scratch;
  Json json = families().front().json;
  json["family"] = "mine";
  json["config"]["hiden"] = 3;
  testing::spill(scratch / "mine.json", json.dump());
  const Family family = load_family(scratch / "mine.json");
  EXPECT_EQ(family.name, "mine");
  EXPECT_THAT(sentence([&] { config_from_hf(family, config_of("gemma2-a"), "config.json"); }), HasSubstr("hiden"));
}

TEST(Families, GlobsMatchRunsOfAnything) {
  EXPECT_TRUE(glob_match("vision_tower.*", "vision_tower.a.b"));
  EXPECT_FALSE(glob_match("vision_tower.*", "model.vision_tower.a"));
  EXPECT_TRUE(glob_match("*.inv_freq", "model.layers.0.inv_freq"));
  EXPECT_TRUE(glob_match("a*b*c", "aXbYbZc"));
  EXPECT_FALSE(glob_match("a*b*c", "aXbYbZ"));
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_FALSE(glob_match("", "a"));
}

TEST(Families, SlotsKnowTheirLayer) {
  EXPECT_EQ(layer_of("layer12.q_proj"), 12);
  EXPECT_EQ(layer_of("embed"), -1);
  EXPECT_EQ(layer_of("layer"), -1);
  EXPECT_EQ(layer_of("layer3"), -1);
}

ModelConfig preset_config(
    const std::string& name, const std::function<void(Json&)>& edit = [](Json&) {}) {
  const Preset preset = preset_named(name);
  Json config = *preset.config;
  edit(config);
  return config_from_hf(*preset.family, config, name);
}

TEST(Families, SingleLayersAreMarked) {
  const ModelConfig every = preset_config("smollm3-3b");
  EXPECT_EQ(every.ropes[static_cast<size_t>(every.layers[3].rope)].rotated, 0) << "every fourth turns nothing";
  EXPECT_EQ(every.layers[0].rope, 0);
  const ModelConfig listed = preset_config("smollm3-3b", [](Json& config) {
    config["num_hidden_layers"] = 3;
    config["no_rope_layers"] = Json::array({0, 1, 1});
  });
  EXPECT_EQ(listed.layers[0].rope, 1) << "the list wins";
  const ModelConfig sparse = preset_config("qwen3-30b-a3b", [](Json& config) {
    config["mlp_only_layers"] = Json::array({3});
    config["decoder_sparse_step"] = 2;
  });
  EXPECT_TRUE(sparse.layers[0].dense);
  EXPECT_FALSE(sparse.layers[1].dense);
  EXPECT_TRUE(sparse.layers[3].dense) << "listed";
  EXPECT_EQ(sparse.expert_ffn, 768);
}

TEST(Families, ARopeOfAPartOfAHeadWithFactorsForEachPair) {
  const ModelConfig c = preset_config("phi-4-mini");
  EXPECT_EQ(rotary_dims(c.ropes[0], c.head_dim), 96);
  EXPECT_EQ(c.ropes[0].scaling, RopeScaling::kLongRope);
  EXPECT_EQ(c.ropes[0].long_factors.size(), 48u);
  EXPECT_NEAR(make_rope_table(c.ropes[0], c.head_dim).magnitude, 1.1902, 1e-4);
  EXPECT_EQ(c.layers[0].window, 0) << "a window wider than the context is none";
}

TEST(Families, TokensThatAllEndAnAnswerAreReadInOneGo) {
  Json config = config_of("gemma3-a");
  Json ids = Json::array();
  for (int i = 0; i < 200'000; ++i) ids.push_back(i / 2 * 3);  // each of them twice
  config["eos_token_id"] = std::move(ids);
  const std::clock_t begin = std::clock();
  EXPECT_THAT(read(config).eos_ids, SizeIs(100'000));
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 1);
}

}  // namespace
}  // namespace doppler
