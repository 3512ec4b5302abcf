// ModelConfig in an RDRR manifest. The keys are the public format's; where it has no place for a number we need, a
// key of ours stands beside them (marked "ours"), and readers that do not know it lose nothing they could express.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "model/manifest_keys.h"
#include "model/model_config.h"

namespace doppler {
namespace {

constexpr float kDefaultSwigluAlpha = 1.702f;

const char* scaling_name(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::kNone: return nullptr;
    case RopeScaling::kLinear: return "linear";
    case RopeScaling::kLlama3: return "llama3";
    case RopeScaling::kYarn: return "yarn";
    case RopeScaling::kLongRope: return "longrope";
    case RopeScaling::kProportional: return "proportional";
  }
  return nullptr;
}

RopeScaling scaling_from_name(const std::string& name, const std::string& where) {
  if (name.empty() || name == "default") return RopeScaling::kNone;
  if (name == "linear") return RopeScaling::kLinear;
  if (name == "llama3") return RopeScaling::kLlama3;
  if (name == "yarn") return RopeScaling::kYarn;
  if (name == "longrope") return RopeScaling::kLongRope;
  if (name == "proportional") return RopeScaling::kProportional;
  fail({.code = ErrorCode::kUnsupported,
        .what = "an unknown rope scaling",
        .where = where,
        .expected = "linear, llama3, yarn, longrope or proportional",
        .got = name});
}

std::string key(bool local, const char* name) { return local ? local_rope_key(name) : name; }

// The public format wants these keys, whether or not the rope's kind has them.
constexpr const char* kRopeKeys[] = {
    "ropeTheta",    "ropeScalingType",    "partialRotaryFactor", "ropeFrequencyBaseDim", "yarnBetaFast",
    "yarnBetaSlow", "yarnOriginalMaxPos", "longropeShortFactor", "longropeLongFactor",   "longropeOriginalMaxPos"};

// `head_dim`: of the layers that have the rope. The public format's word for a proportional rope is that its
// frequencies are those of all the head's dims.
void write_rope(const RopeConfig& rope, bool local, int head_dim, Json& out) {
  out[key(local, "ropeTheta")] = rope.theta;
  const bool proportional = rope.scaling == RopeScaling::kProportional && rope.rotated < 1;
  const char* scaling = proportional ? nullptr : scaling_name(rope.scaling);
  out[key(local, "ropeScalingType")] = scaling ? Json(scaling) : Json();
  out[key(local, "ropeScalingFactor")] = scaling ? rope.factor : 1;
  out[key(local, "partialRotaryFactor")] = rope.rotated != 1 ? Json(rope.rotated) : Json();
  if (proportional) out[key(local, "ropeFrequencyBaseDim")] = head_dim;
  if (rope.query_beta != 0) out[key(local, "ropeQueryScaleBeta")] = rope.query_beta;  // ours
  if (rope.scaling == RopeScaling::kLongRope) {
    out[key(local, "longropeShortFactor")] = rope.short_factors;
    out[key(local, "longropeLongFactor")] = rope.long_factors;
    out[key(local, "longropeOriginalMaxPos")] = rope.original_context;
    out[key(local, "longropeAttentionFactor")] = rope.attention_factor;  // ours; 0: from the factor
  }
  if (rope.scaling == RopeScaling::kYarn) {
    out[key(local, "yarnBetaFast")] = rope.beta_fast;
    out[key(local, "yarnBetaSlow")] = rope.beta_slow;
    out[key(local, "yarnOriginalMaxPos")] = rope.original_context;
    out[key(local, "yarnTruncate")] = rope.truncate;                 // ours
    out[key(local, "yarnAttentionFactor")] = rope.attention_factor;  // ours; 0: from the factor
  }
  if (rope.scaling == RopeScaling::kLlama3) {  // ours
    out[key(local, "llama3LowFreqFactor")] = rope.low_freq_factor;
    out[key(local, "llama3HighFreqFactor")] = rope.high_freq_factor;
    out[key(local, "llama3OriginalMaxPos")] = rope.original_context;
  }
}

std::vector<double> numbers_in(const Json& in, const std::string& name, const std::string& where) {
  std::vector<double> out;
  for (const Json& item : require_array(in, name, where)) {
    if (!item.is_number() || out.size() == 4096) {
      fail({.code = ErrorCode::kFormat,
            .what = "a list of numbers is needed",
            .where = where + ": " + name,
            .got = brief(item)});
    }
    out.push_back(item.get<double>());
  }
  return out;
}

RopeConfig read_rope(const Json& in, bool local, double theta, int head_dim, int max_context,
                     const std::string& where) {
  RopeConfig rope;
  rope.theta = number_or(in, key(local, "ropeTheta"), theta, where);
  rope.scaling = scaling_from_name(string_or(in, key(local, "ropeScalingType"), "", where), where);
  rope.rotated = number_or(in, key(local, "partialRotaryFactor"), 1, where);
  rope.query_beta = number_or(in, key(local, "ropeQueryScaleBeta"), 0, where);
  rope.factor = number_or(in, key(local, "ropeScalingFactor"), 1, where);
  if (rope.scaling == RopeScaling::kNone && rope.factor != 1) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "a rotary embedding has a factor, but no scaling that would use it",
          .where = where + "." + key(local, "ropeScalingFactor"),
          .expected = "1",
          .got = fmt::format("{}", rope.factor)});
  }
  if (find(in, key(local, "ropeFrequencyBaseDim"))) {
    const double dims = number_or(in, key(local, "ropeFrequencyBaseDim"), 0, where);
    if (dims == head_dim && rope.scaling == RopeScaling::kNone) {
      if (rope.rotated < 1) rope.scaling = RopeScaling::kProportional;
    } else if (dims != rotary_dims(rope, head_dim)) {
      fail({.code = ErrorCode::kUnsupported,
            .what = "a rotary embedding has frequencies of neither the head nor the dims that turn",
            .where = where + "." + key(local, "ropeFrequencyBaseDim"),
            .expected = fmt::format("{} or {}", head_dim, rotary_dims(rope, head_dim)),
            .got = fmt::format("{}", dims)});
    }
  }
  // What a kind of scaling needs, a local rope takes from the global one where it has none of its own.
  const auto named = [&](const char* name) { return find(in, key(local, name)) ? key(local, name) : name; };
  const auto parameter = [&](const char* name, double otherwise) {
    return number_or(in, named(name), otherwise, where);
  };
  if (rope.scaling == RopeScaling::kYarn) {
    rope.beta_fast = parameter("yarnBetaFast", rope.beta_fast);
    rope.beta_slow = parameter("yarnBetaSlow", rope.beta_slow);
    rope.original_context = parameter("yarnOriginalMaxPos", 0);
    rope.truncate = bool_or(in, named("yarnTruncate"), true, where);
    rope.attention_factor = parameter("yarnAttentionFactor", 0);
  }
  if (rope.scaling == RopeScaling::kLlama3) {
    rope.low_freq_factor = require_number(in, named("llama3LowFreqFactor"), where);
    rope.high_freq_factor = require_number(in, named("llama3HighFreqFactor"), where);
    rope.original_context = parameter("llama3OriginalMaxPos", 0);
  }
  if (rope.scaling == RopeScaling::kLongRope) {
    rope.short_factors = numbers_in(in, named("longropeShortFactor"), where);
    rope.long_factors = numbers_in(in, named("longropeLongFactor"), where);
    rope.original_context = parameter("longropeOriginalMaxPos", 0);
    rope.attention_factor = parameter("longropeAttentionFactor", 0);
    // In the public form the factor is how much longer the context became.
    const bool is_public = !find(in, named("longropeAttentionFactor"));
    if (is_public && rope.original_context > 0) rope.factor = std::max(1.0, max_context / rope.original_context);
  }
  return rope;
}

// Which layers are global, in the public form: all or none (uniform), every_n (layer i is global ⇔ (i − offset) mod
// period == 0) where it fits, else a list.
Json write_pattern(const ModelConfig& c) {
  const int n = c.layer_count();
  const auto global = [&](int i) { return c.layers[static_cast<size_t>(i)].window == 0; };
  int globals = 0;
  if (std::any_of(c.layers.begin(), c.layers.end(), [](const auto& l) { return l.mixer != Mixer::kAttention; })) {
    Json kinds = Json::array();
    for (int i = 0; i < n; ++i) {
      const Mixer mixer = c.layers[static_cast<size_t>(i)].mixer;
      kinds.push_back(mixer == Mixer::kShortConv  ? "conv"
                      : mixer == Mixer::kDeltaNet ? "linear_attention"
                      : global(i)                 ? "full_attention"
                                                  : "sliding_attention");
    }
    return {{"type", "custom"}, {"layerTypes", kinds}};
  }
  for (int i = 0; i < n; ++i) globals += global(i);
  if (globals == n || (globals == 0 && c.ropes.size() == 1)) return {{"type", "uniform"}};
  for (int period = 1; period <= n; ++period) {
    for (int offset = 0; offset < period; ++offset) {
      bool fits = true;
      for (int i = 0; i < n && fits; ++i) fits = global(i) == ((i - offset + period) % period == 0);
      if (fits) return {{"type", "every_n"}, {"period", period}, {"offset", offset}};
    }
  }
  Json kinds = Json::array();
  for (int i = 0; i < n; ++i) kinds.push_back(global(i) ? "full_attention" : "sliding_attention");
  return {{"type", "custom"}, {"layerTypes", kinds}};
}

bool is_one_of(const Json& word, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* w) { return word == w; });
}

// A layer that is not global sees as far as the window and has the local rope; `uniform` ones have the global rope.
std::vector<bool> read_pattern(const Json& pattern, int layers, bool windowed, std::vector<Mixer>& mixers,
                               const std::string& where) {
  std::vector<bool> global(static_cast<size_t>(layers), !windowed);
  mixers.assign(global.size(), Mixer::kAttention);
  const std::string type = string_or(pattern, "type", "uniform", where);
  if (type == "all_attention") {
    global.assign(global.size(), true);
  } else if (type == "every_n") {
    const int64_t period = require_int(pattern, "period", where), offset = int_or(pattern, "offset", 0, where);
    if (period < 1 || period > 4096 || offset < -4096 || offset > 4096) {
      fail({.code = ErrorCode::kFormat,
            .what = "the layer pattern is out of range",
            .where = where,
            .expected = "period 1 to 4096",
            .got = brief(pattern)});
    }
    for (int i = 0; i < layers; ++i) global[static_cast<size_t>(i)] = (i - offset) % period == 0;
  } else if (type == "alternating") {
    const Json& which = require(pattern, "globalPattern", where);
    if (!is_one_of(which, {"even", "odd"})) {
      fail({.code = ErrorCode::kFormat,
            .what = "the layer pattern names no layers",
            .where = where + ".globalPattern",
            .expected = "even or odd",
            .got = brief(which)});
    }
    for (size_t i = 0; i < global.size(); ++i) global[i] = (i % 2 == 0) == (which == "even");
  } else if (type == "custom") {
    const char* list = find(pattern, "layerTypes") ? "layerTypes" : "layers";
    const Json& kinds = require_array(pattern, list, where);
    if (kinds.size() != global.size()) {
      fail({.code = ErrorCode::kFormat,
            .what = "the layer pattern does not cover every layer",
            .where = where,
            .expected = std::to_string(layers),
            .got = std::to_string(kinds.size())});
    }
    for (size_t i = 0; i < global.size(); ++i) {
      global[i] = is_one_of(kinds[i], {"full_attention", "global_attention", "full", "global", "attention"});
      if (global[i] || is_one_of(kinds[i], {"sliding_attention", "local_attention", "sliding", "local"})) continue;
      global[i] = is_one_of(kinds[i], {"linear_attention", "conv"});
      if (global[i]) mixers[i] = kinds[i] == "conv" ? Mixer::kShortConv : Mixer::kDeltaNet;
      if (global[i]) continue;
      fail({.code = ErrorCode::kUnsupported,
            .what = "an unknown kind of layer",
            .where = fmt::format("{}.{}[{}]", where, list, i),
            .expected = "full_attention, sliding_attention, linear_attention or conv",
            .got = brief(kinds[i])});
    }
  } else if (type != "uniform") {
    fail({.code = ErrorCode::kUnsupported,
          .what = "an unknown layer pattern",
          .where = where,
          .expected = "uniform, alternating, every_n or custom",
          .got = type});
  }
  return global;
}

// The shortest decimal that reads back as the same float: 1e-06, not 9.999999974752427e-07.
Json number(float value) { return std::strtod(fmt::format("{}", value).c_str(), nullptr); }

Json optional(float value) { return value > 0 ? number(value) : Json(); }

// The scale's public form is the scalar whose inverse square root it is; whole numbers come back as they were.
double pre_attention_scalar(float scale) {
  const double scalar = 1.0 / (static_cast<double>(scale) * scale);
  const double whole = std::round(scalar);
  return static_cast<float>(1 / std::sqrt(whole)) == scale ? whole : scalar;
}

int small_int(const Json& object, const char* name, const std::string& where) {
  const int64_t value = require_int(object, name, where);
  if (value < 0 || value > (1 << 28)) {
    fail({.code = ErrorCode::kFormat,
          .what = "a size is out of range",
          .where = where + ": " + name,
          .expected = "0 to 2^28",
          .got = std::to_string(value)});
  }
  return static_cast<int>(value);
}

float offset_of(const Json& normalization, const std::string& where) {
  const Json* offset = find(normalization, "rmsNormWeightOffset");
  if (!offset) return 0;
  if (offset->is_boolean()) return offset->get<bool>() ? 1.f : 0.f;
  return static_cast<float>(number_or(normalization, "rmsNormWeightOffset", 0, where));
}

EmbeddingConfig read_embedding(const Json& in, const std::string& where) {
  EmbeddingConfig out;
  const std::string pooling = require_string(in, "poolingMode", where);
  for (const Pooling known : {Pooling::kMean, Pooling::kLast}) {
    if (pooling == name_of(known)) out.pooling = known;
  }
  if (out.pooling == Pooling::kNone) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "rows of tokens become one in an unknown way",
          .where = where + ".poolingMode",
          .expected = "mean or last",
          .got = brief(Json(pooling))});
  }
  const auto refuse = [&](const std::string& key, const char* expected, const Json& got) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "the manifest asks for something that this engine does not compute",
          .where = where + "." + key,
          .expected = expected,
          .got = brief(got)});
  };
  if (find(in, "projections")) {
    for (const Json& projection : require_array(in, "projections", where)) {
      const std::string here = where + ".projections";
      if (const Json* bias = find(projection, "biasTensor")) refuse("projections.biasTensor", "null", *bias);
      if (require_string(projection, "activation", here) != "identity")
        refuse("projections.activation", "identity", projection["activation"]);
      out.dense.push_back(small_int(projection, "outputSize", here));
    }
  }
  const Json* length = find(in, "normalize");
  if (length && *length != Json("l2")) refuse("normalize", "l2 or null", *length);
  out.normalize = length != nullptr;
  return out;
}

constexpr std::pair<const char*, int LayerConfig::*> kLayerNumbers[] = {{"layerHeadDims", &LayerConfig::head_dim},
                                                                        {"layerKeyValueHeads", &LayerConfig::kv_heads},
                                                                        {"layerFeedForwards", &LayerConfig::ffn},
                                                                        {"layerKeysOf", &LayerConfig::keys_of}};

// The last layers of which keys belong to an earlier layer that sees as far, how many they are: 0 where it is not so
// that each reads the last of its kind before them.
int shared_layers(const ModelConfig& c) {
  const auto first = std::find_if(c.layers.begin(), c.layers.end(), [](const auto& l) { return l.keys_of >= 0; });
  for (auto layer = first; layer != c.layers.end(); ++layer) {
    const auto source = std::find_if(std::make_reverse_iterator(first), c.layers.rend(),
                                     [&](const LayerConfig& l) { return (l.window > 0) == (layer->window > 0); });
    if (source == c.layers.rend() || layer->keys_of != c.layers.rend() - source - 1) return 0;
  }
  return static_cast<int>(c.layers.end() - first);
}

// The number that all layers which see everything have of their own while the others have the model's; else 0.
int global_number(const ModelConfig& c, int LayerConfig::*field) {
  int number = 0;
  for (const LayerConfig& layer : c.layers) {
    if (layer.window == 0) number = layer.*field;
  }
  const auto fits = [&](const LayerConfig& l) { return l.*field == (l.window == 0 ? number : 0); };
  return std::all_of(c.layers.begin(), c.layers.end(), fits) ? number : 0;
}

bool double_wide(const ModelConfig& c, int shared) {
  const auto wide = [&](const LayerConfig& l) { return l.ffn == 2 * c.ffn; };
  return shared > 0 && std::all_of(c.layers.end() - shared, c.layers.end(), wide) &&
         std::none_of(c.layers.begin(), c.layers.end() - shared, wide);
}

// The public format's words for what layers have in their own way, each of which a list of ours overrules.
void read_layer_words(const Json& a, const Json& ffn, const Json& pattern, const std::string& at, ModelConfig& c) {
  const auto word = [&](const char* name, const char* list) {
    return find(a, name) && !find(pattern, list) ? small_int(a, name, at) : 0;
  };
  const int head_dim = word("globalHeadDim", "layerHeadDims"), shared = word("numKvSharedLayers", "layerKeysOf"),
            kv_heads = word("numGlobalKeyValueHeads", "layerKeyValueHeads");
  for (LayerConfig& layer : c.layers) {
    if (layer.window > 0) continue;
    if (head_dim != c.head_dim && head_dim > 0) layer.head_dim = head_dim;
    if (kv_heads != c.kv_heads && kv_heads > 0) layer.kv_heads = kv_heads;
  }
  const bool wide = !find(pattern, "layerFeedForwards") && bool_or(ffn, "useDoubleWideMlp", false, at);
  const int count = find(a, "numKvSharedLayers") ? small_int(a, "numKvSharedLayers", at) : 0;
  if (count >= c.layer_count() || (wide && count == 0)) {
    fail({.code = ErrorCode::kFormat,
          .what = wide ? "the layers that read others' keys are wider, and there are none"
                       : "no layer would have keys of its own",
          .where = at + ".numKvSharedLayers",
          .expected = fmt::format("{} to {}", wide ? 1 : 0, c.layer_count() - 1),
          .got = std::to_string(count)});
  }
  for (int i = c.layer_count() - count; i < c.layer_count(); ++i) {
    LayerConfig& layer = c.layers[static_cast<size_t>(i)];
    if (wide) layer.ffn = 2 * c.ffn;
    for (int source = c.layer_count() - count; shared > 0 && layer.keys_of < 0 && source-- > 0;) {
      if ((c.layer(source).window > 0) == (layer.window > 0)) layer.keys_of = source;
    }
  }
}

}  // namespace

void write_model_config(const ModelConfig& c, Json& manifest) {
  int window = 0;
  bool listed = false;  // are layers' ropes not told by their windows?
  Json dense = Json::array();
  for (const LayerConfig& layer : c.layers) {
    if (layer.dense) dense.push_back(static_cast<int>(&layer - c.layers.data()));
    const bool local = layer.window > 0;
    if (local && window > 0 && layer.window != window) {
      fail({.code = ErrorCode::kUnsupported,
            .what = "the artefact has room for one window size",
            .where = c.id,
            .expected = std::to_string(window),
            .got = std::to_string(layer.window)});
    }
    if (local) window = layer.window;
    listed = listed || layer.rope != (local && c.ropes.size() > 1 ? 1 : 0);
  }
  if (c.ropes.size() > 2) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "the artefact has room for two rotary embeddings",
          .where = c.id,
          .got = std::to_string(c.ropes.size())});
  }
  manifest["architecture"] = {{"numLayers", c.layer_count()},
                              {"hiddenSize", c.hidden},
                              {"intermediateSize", c.ffn},
                              {"numAttentionHeads", c.heads},
                              {"numKeyValueHeads", c.kv_heads},
                              {"headDim", c.head_dim},
                              {"vocabSize", c.vocab},
                              {"maxSeqLen", c.max_context},
                              {"ropeTheta", c.ropes.front().theta},
                              {"rmsNormEps", number(c.norm_eps)}};
  const int shared = shared_layers(c);
  if (c.layer_input > 0) manifest["architecture"]["hiddenSizePerLayerInput"] = c.layer_input;
  if (shared > 0) manifest["architecture"]["numKvSharedLayers"] = shared;
  if (const int n = global_number(c, &LayerConfig::head_dim)) manifest["architecture"]["globalHeadDim"] = n;
  if (const int n = global_number(c, &LayerConfig::kv_heads)) manifest["architecture"]["numGlobalKeyValueHeads"] = n;
  if (c.conv_kernel > 0) manifest["architecture"]["linearConvKernelDim"] = c.conv_kernel;
  if (c.delta_key_heads > 0) {
    Json& architecture = manifest["architecture"];
    architecture["linearNumKeyHeads"] = c.delta_key_heads;
    architecture["linearNumValueHeads"] = c.delta_value_heads;
    architecture["linearKeyHeadDim"] = c.delta_key_dim;
    architecture["linearValueHeadDim"] = c.delta_value_dim;
  }
  manifest["moeConfig"] = c.experts == 0
                              ? Json()
                              : Json{{"numExperts", c.experts},
                                     {"numExpertsPerToken", c.experts_per_token},
                                     {"expertFormat", c.expert_bias          ? "gpt-oss"  // expertFormat's own words
                                                      : c.ffn_beside_experts ? "gemma4"   // expertFormat's own words
                                                                             : "mixtral"},
                                     {"expertIntermediateSize", c.expert_ffn > 0 ? c.expert_ffn : c.ffn},
                                     {"expertBias", c.expert_bias},  // ours, as are all from here on
                                     {"normalizedWeights", c.route_normalized},
                                     {"denseLayers", dense}};
  if (c.shared_ffn > 0) manifest["moeConfig"]["sharedExpertIntermediateSize"] = c.shared_ffn;
  if (c.ffn_beside_experts) manifest["moeConfig"]["besideFeedForward"] = true;
  Json rope;
  for (const char* name : kRopeKeys) rope[name] = rope[local_rope_key(name)] = nullptr;
  rope["ropeLocalScalingFactor"] = 1;
  rope["mropeInterleaved"] = false;
  rope["mropeSection"] = nullptr;
  write_rope(c.ropes.front(), false, c.head_dim_of_rope(0), rope);
  // A local rope of nulls would have none of the global one's scaling.
  const RopeConfig& local = c.ropes.back();
  if (c.ropes.size() > 1 || local.scaling != RopeScaling::kNone || local.rotated != 1 || local.query_beta != 0) {
    write_rope(local, true, c.head_dim_of_rope(static_cast<int>(c.ropes.size()) - 1), rope);
    if (c.ropes.size() == 1) rope["ropeLocalTheta"] = nullptr;
  }
  const bool clamped = c.activation == Activation::kClampedSwiglu;
  const float root = std::sqrt(static_cast<float>(c.hidden));
  Json inference;
  inference["attention"] = {{"queryPreAttnScalar", pre_attention_scalar(c.attn_scale)},
                            {"attnLogitSoftcapping", optional(c.attn_softcap)},
                            {"slidingWindow", window > 0 ? Json(window) : Json()},
                            {"queryKeyNorm", c.qk_norm},
                            {"queryKeyNormAxis", c.qk_norm_whole ? "projection" : "head"},
                            {"attentionBias", c.qkv_bias},
                            {"outputBias", c.o_bias},          // ours
                            {"attentionSinks", c.attn_sinks},  // ours
                            {"attentionOutputGate", c.attn_gate},
                            {"valueNorm", c.v_norm},
                            {"causal", c.causal}};
  inference["normalization"] = {{"rmsNormEps", number(c.norm_eps)},
                                {"rmsNormWeightOffset", c.norm_offset == 0   ? Json(false)
                                                        : c.norm_offset == 1 ? Json(true)
                                                                             : number(c.norm_offset)},
                                {"postAttentionNorm", c.post_attn_norm},
                                {"preFeedforwardNorm", c.pre_norms},
                                {"preAttentionNorm", c.pre_norms},  // ours
                                {"postFeedforwardNorm", c.post_ffn_norm}};
  inference["ffn"] = {{"activation", c.activation == Activation::kGeluTanh ? "gelu"
                                     : clamped                             ? "swiglu"
                                                                           : "silu"},
                      {"gatedActivation", true},
                      {"branchMode", c.ffn_beside_experts ? "dense_plus_moe" : "auto"},
                      {"useDoubleWideMlp", double_wide(c, shared)},
                      {"swigluLimit", clamped ? number(c.swiglu_limit) : Json()},
                      {"swigluAlpha", clamped ? number(c.swiglu_alpha) : Json()}};  // ours
  inference["rope"] = std::move(rope);
  inference["output"] = {{"tieWordEmbeddings", c.tied_output},
                         {"scaleEmbeddings", c.embed_scale == root},
                         {"embeddingScale", c.embed_scale == root ? Json() : number(c.embed_scale)},
                         {"logitInputScale", number(c.logit_scale)},
                         {"embeddingTranspose", false},
                         {"embeddingVocabSize", nullptr},
                         {"embeddingPostprocessor", nullptr},
                         {"finalLogitSoftcapping", optional(c.logit_softcap)}};
  if (!c.makes_text()) {  // who does not know these keys refuses them
    Json projections = Json::array();
    int width = c.hidden;
    for (const int out : c.embedding.dense) {
      projections.push_back({{"weightTensor", fmt::format("dense{}", projections.size())},
                             {"biasTensor", nullptr},
                             {"inputSize", width},
                             {"outputSize", out},
                             {"activation", "identity"}});
      width = out;
    }
    inference["output"]["embeddingPostprocessor"] = {{"poolingMode", std::string(name_of(c.embedding.pooling))},
                                                     {"includePrompt", true},
                                                     {"projections", std::move(projections)},
                                                     {"normalize", c.embedding.normalize ? Json("l2") : Json()}};
  }
  inference["layerPattern"] = {{"type", nullptr}, {"globalPattern", nullptr}, {"period", nullptr}, {"offset", nullptr}};
  inference["layerPattern"].update(write_pattern(c));
  inference["layerPattern"]["residualBranchScale"] = number(c.residual_scale);
  if (listed) {  // ours: 0 is the global rope, 1 the local one, whatever the layer's window
    Json& ropes = inference["layerRopes"] = Json::array();
    for (const LayerConfig& layer : c.layers) ropes.push_back(layer.rope);
  }
  if (c.layer_scale) inference["layerPattern"]["layerScale"] = true;  // ours
  for (const auto& [name, field] :
       kLayerNumbers) {  // ours: what layers have in their own way, -1 or 0 where they do not
    Json numbers = Json::array();
    bool own = false;
    for (const LayerConfig& layer : c.layers) {
      numbers.push_back(layer.*field);
      own = own || layer.*field != LayerConfig().*field;
    }
    if (own) inference["layerPattern"][name] = std::move(numbers);
  }
  if (std::any_of(c.layers.begin(), c.layers.end(), [](const LayerConfig& l) { return l.values_are_keys; })) {
    Json& list = inference["layerPattern"]["valuesAreKeys"] = Json::array();  // ours
    for (int i = 0; i < c.layer_count(); ++i) {
      if (c.layer(i).values_are_keys) list.push_back(i);
    }
  }
  manifest["inference"] = std::move(inference);
  manifest["bos_token_id"] = c.bos_id >= 0 ? Json(c.bos_id) : Json();
  manifest["eos_token_id"] = c.eos_ids.size() == 1 ? Json(c.eos_ids[0]) : Json(c.eos_ids);
}

ModelConfig read_model_config(const Json& manifest, const std::string& where) {
  check_manifest_keys(manifest, where);
  ModelConfig c;
  c.id = string_or(manifest, "modelId", "model", where);
  const std::string at = where + ": architecture";
  const Json& a = require_object(manifest, "architecture", where);
  c.hidden = small_int(a, "hiddenSize", at);
  c.ffn = small_int(a, "intermediateSize", at);
  c.heads = small_int(a, "numAttentionHeads", at);
  c.kv_heads = small_int(a, "numKeyValueHeads", at);
  c.head_dim = small_int(a, "headDim", at);
  c.vocab = small_int(a, "vocabSize", at);
  c.max_context = small_int(a, "maxSeqLen", at);
  const auto optional_int = [&](const char* name) { return find(a, name) ? small_int(a, name, at) : 0; };
  c.layer_input = optional_int("hiddenSizePerLayerInput");
  c.conv_kernel = optional_int("linearConvKernelDim");
  c.delta_key_heads = optional_int("linearNumKeyHeads");
  c.delta_value_heads = optional_int("linearNumValueHeads");
  c.delta_key_dim = optional_int("linearKeyHeadDim");
  c.delta_value_dim = optional_int("linearValueHeadDim");
  const int layers = small_int(a, "numLayers", at);
  if (layers > 4096)
    fail({.code = ErrorCode::kFormat,
          .what = "too many layers",
          .where = at,
          .expected = "at most 4096",
          .got = std::to_string(layers)});

  static const Json kNothing = Json::object();
  const std::string in = where + ": inference";
  const Json& inference = require_object(manifest, "inference", where);
  const auto part = [&](const char* name) -> const Json& {
    return find(inference, name) ? require_object(inference, name, in) : kNothing;
  };
  const Json& attention = part("attention");
  const std::string in_attention = in + ".attention";
  const double scalar = number_or(attention, "queryPreAttnScalar", c.head_dim, in_attention);
  if (!(scalar > 0))
    fail({.code = ErrorCode::kFormat,
          .what = "queryPreAttnScalar must be positive",
          .where = in_attention,
          .got = fmt::format("{}", scalar)});
  c.attn_scale = static_cast<float>(1 / std::sqrt(scalar));
  c.attn_softcap = static_cast<float>(number_or(attention, "attnLogitSoftcapping", 0, in_attention));
  c.qk_norm = bool_or(attention, "queryKeyNorm", false, in_attention);
  const std::string axis = string_or(attention, "queryKeyNormAxis", "head", in_attention);
  if (axis != "head" && axis != "projection") {
    fail({.code = ErrorCode::kUnsupported,
          .what = "queries and keys are normed over something unknown",
          .where = in_attention + ".queryKeyNormAxis",
          .expected = "head or projection",
          .got = axis});
  }
  c.qk_norm_whole = axis == "projection";
  c.qkv_bias = bool_or(attention, "attentionBias", false, in_attention);
  c.o_bias = bool_or(attention, "outputBias", c.qkv_bias, in_attention);
  c.attn_sinks = bool_or(attention, "attentionSinks", false, in_attention);
  c.attn_gate = bool_or(attention, "attentionOutputGate", false, in_attention);
  c.v_norm = bool_or(attention, "valueNorm", false, in_attention);
  c.causal = bool_or(attention, "causal", true, in_attention);
  const int window = find(attention, "slidingWindow") ? small_int(attention, "slidingWindow", in_attention) : 0;

  const Json& norms = part("normalization");
  const std::string in_norms = in + ".normalization";
  c.norm_eps = static_cast<float>(number_or(norms, "rmsNormEps", number_or(a, "rmsNormEps", 1e-6, at), in_norms));
  c.norm_offset = offset_of(norms, in_norms);
  c.post_ffn_norm = bool_or(norms, "postFeedforwardNorm", false, in_norms);
  c.pre_norms = bool_or(norms, "preAttentionNorm", true, in_norms);
  // Artefacts of two-norm models say postAttentionNorm true and preFeedforwardNorm false for the one norm that
  // stands before the feed-forward: the sandwich norm exists only beside a pre-feed-forward norm.
  c.post_attn_norm = bool_or(norms, "postAttentionNorm", false, in_norms) &&
                     (!c.pre_norms || bool_or(norms, "preFeedforwardNorm", false, in_norms));

  const Json& ffn = part("ffn");
  const std::string in_ffn = in + ".ffn";
  const std::string activation = string_or(ffn, "activation", "silu", in_ffn);
  c.swiglu_limit = static_cast<float>(number_or(ffn, "swigluLimit", 0, in_ffn));
  if (c.swiglu_limit > 0) {
    c.activation = Activation::kClampedSwiglu;
    c.swiglu_alpha = static_cast<float>(number_or(ffn, "swigluAlpha", kDefaultSwigluAlpha, in_ffn));
  } else if (activation == "gelu" || activation == "geglu" || activation == "gelu_tanh" ||
             activation == "gelu_pytorch_tanh") {
    c.activation = Activation::kGeluTanh;
  } else if (activation == "silu" || activation == "swiglu") {
    c.activation = Activation::kSilu;
  } else {
    fail({.code = ErrorCode::kUnsupported,
          .what = "an unknown activation",
          .where = in_ffn,
          .expected = "gelu, geglu, silu or swiglu",
          .got = activation});
  }
  if (const Json* moe = find(manifest, "moeConfig")) {
    c.experts = small_int(*moe, "numExperts", where + ": moeConfig");
    c.experts_per_token = small_int(*moe, "numExpertsPerToken", where + ": moeConfig");
    const int expert_ffn = find(*moe, "expertIntermediateSize") ? small_int(*moe, "expertIntermediateSize", where) : 0;
    c.expert_ffn = expert_ffn == c.ffn ? 0 : expert_ffn;
    if (find(*moe, "sharedExpertIntermediateSize"))
      c.shared_ffn = small_int(*moe, "sharedExpertIntermediateSize", where + ": moeConfig");
    const Json format = moe->value("expertFormat", nullptr);
    // Earlier artefacts of ours have the experts' number format here.
    if (!format.is_null() &&
        !is_one_of(format, {"mixtral", "gpt-oss", "gemma4", "mxfp4"})) {  // expertFormat's own words
      fail({.code = ErrorCode::kUnsupported,
            .what = "experts of an unknown kind",
            .where = where + ": moeConfig.expertFormat",
            .expected = "mixtral, gpt-oss or gemma4",  // expertFormat's own words
            .got = brief(format)});
    }
    const bool beside = format == "gemma4";  // expertFormat's own words
    c.expert_bias = bool_or(*moe, "expertBias", format != "mixtral" && !beside, where + ": moeConfig");
    c.route_normalized = bool_or(*moe, "normalizedWeights", true, where + ": moeConfig");
    c.ffn_beside_experts = bool_or(*moe, "besideFeedForward", beside, where + ": moeConfig");
  }

  const std::string branch = string_or(ffn, "branchMode", "auto", in_ffn);
  const std::string only = c.ffn_beside_experts ? "dense_plus_moe" : c.experts > 0 ? "moe" : "dense";
  if (branch != "auto" && branch != only) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "the feed-forward has other branches than the model's experts call for",
          .where = in_ffn + ".branchMode",
          .expected = "auto or " + only,
          .got = brief(Json(branch))});
  }

  const Json& pattern = part("layerPattern");
  std::vector<Mixer> mixers;
  const std::vector<bool> global = read_pattern(pattern, layers, window > 0, mixers, in + ".layerPattern");
  c.residual_scale = static_cast<float>(number_or(pattern, "residualBranchScale", 1, in + ".layerPattern"));
  const bool uniform = find(pattern, "type") && pattern["type"] == "uniform";
  for (const bool is_global : global) {
    c.layers.push_back(is_global ? LayerConfig{0, 0} : LayerConfig{window, uniform ? 0 : 1});
    c.layers.back().mixer = mixers[c.layers.size() - 1];
  }
  const auto layer_at = [&](double index, const std::string& list) -> LayerConfig& {
    if (index >= 0 && index < layers) return c.layers[static_cast<size_t>(index)];
    fail({.code = ErrorCode::kFormat,
          .what = "there is no such layer",
          .where = list,
          .expected = fmt::format("0 to {}", layers - 1),
          .got = fmt::format("{}", index)});
  };
  const std::string in_pattern = in + ".layerPattern";
  c.layer_scale = bool_or(pattern, "layerScale", false, in_pattern);
  for (const auto& [name, field] : kLayerNumbers) {
    if (!find(pattern, name)) continue;
    const std::vector<double> numbers = numbers_in(pattern, name, in_pattern);
    for (size_t i = 0; i < numbers.size(); ++i) {
      layer_at(static_cast<double>(i), in_pattern + "." + name).*field =
          static_cast<int>(std::clamp(numbers[i], -1.0, 1.0 * (1 << 28)));
    }
  }
  read_layer_words(a, ffn, pattern, at, c);
  if (find(pattern, "valuesAreKeys")) {
    for (const double layer : numbers_in(pattern, "valuesAreKeys", in_pattern)) {
      layer_at(layer, in_pattern + ".valuesAreKeys").values_are_keys = true;
    }
  }
  if (const Json* moe = find(manifest, "moeConfig"); moe && find(*moe, "denseLayers")) {
    for (const double layer : numbers_in(*moe, "denseLayers", where + ": moeConfig")) {
      layer_at(layer, where + ": moeConfig.denseLayers").dense = true;
    }
  }

  const Json& rope = part("rope");
  const std::string in_rope = in + ".rope";
  if (find(inference, "layerRopes")) {
    const std::vector<double> ropes = numbers_in(inference, "layerRopes", in);
    for (size_t i = 0; i < ropes.size(); ++i) {
      layer_at(static_cast<double>(i), in + ".layerRopes").rope = static_cast<int>(std::clamp(ropes[i], -1.0, 2.0));
    }
  }
  const double theta = number_or(a, "ropeTheta", 10000, at);
  c.ropes.push_back(read_rope(rope, false, theta, c.head_dim_of_rope(0), c.max_context, in_rope));
  // A token of text has one position in place of three, so how the dims are dealt out to them makes no difference.
  if (find(rope, "mropeSection")) {
    double pairs = 0;
    for (const double section : numbers_in(rope, "mropeSection", in_rope)) pairs += section;
    const int dims = rotary_dims(c.ropes[0], c.head_dim_of_rope(0));
    if (2 * pairs != dims) {
      fail({.code = ErrorCode::kFormat,
            .what = "the sections of the rotary embedding do not cover the dims that turn",
            .where = in_rope + ".mropeSection",
            .expected = fmt::format("{} pairs", dims / 2),
            .got = fmt::format("{}", pairs)});
    }
  }
  // Null says that local layers have the global theta, but none of the global rope's scaling and all dims turned.
  bool has_local = false;
  for (const auto& item : rope.items()) has_local = has_local || item.key.starts_with("ropeLocal");
  if (has_local && (!uniform || find(inference, "layerRopes"))) {
    RopeConfig local = read_rope(rope, true, c.ropes[0].theta, c.head_dim_of_rope(1), c.max_context, in_rope);
    const bool other_heads = c.head_dim_of_rope(0) != c.head_dim_of_rope(1);
    if (find(rope, "ropeLocalTheta") || local != c.ropes[0] || other_heads) c.ropes.push_back(std::move(local));
  }
  for (LayerConfig& layer : c.layers) {
    if (c.ropes.size() == 1 && layer.rope == 1 && !find(inference, "layerRopes")) layer.rope = 0;
  }

  const Json& output = part("output");
  const std::string in_output = in + ".output";
  c.tied_output = bool_or(output, "tieWordEmbeddings", false, in_output);
  const float root = std::sqrt(static_cast<float>(c.hidden));
  const bool scaled = bool_or(output, "scaleEmbeddings", false, in_output);
  c.embed_scale = static_cast<float>(number_or(output, "embeddingScale", scaled ? root : 1, in_output));
  c.logit_softcap = static_cast<float>(number_or(output, "finalLogitSoftcapping", 0, in_output));
  c.logit_scale = static_cast<float>(number_or(output, "logitInputScale", 1, in_output));
  if (const Json* embedding = find(output, "embeddingPostprocessor"))
    c.embedding = read_embedding(*embedding, in_output + ".embeddingPostprocessor");
  // The embedding's rows count where they are not as many as the architecture says.
  if (find(output, "embeddingVocabSize")) c.vocab = small_int(output, "embeddingVocabSize", in_output);

  const auto token = [&](const Json& id, const char* name) {
    const int64_t value = id.is_number_integer() ? id.get<int64_t>() : -1;
    if (value < 0 || value >= c.vocab) {
      fail({.code = ErrorCode::kFormat,
            .what = std::string(name) + " is no token",
            .where = where,
            .expected = fmt::format("whole numbers from 0 to {}", c.vocab - 1),
            .got = brief(id)});
    }
    return static_cast<int32_t>(value);
  };
  if (const Json* bos = find(manifest, "bos_token_id")) c.bos_id = token(*bos, "bos_token_id");
  if (const Json* eos = find(manifest, "eos_token_id")) {
    const Json list = eos->is_array() ? *eos : Json::array({*eos});
    for (const Json& id : list) c.eos_ids.push_back(token(id, "eos_token_id"));
  }
  check(c, where);
  return c;
}

}  // namespace doppler
