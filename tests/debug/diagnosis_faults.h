// Faults that no signature tells apart, and the sentence that names each.
//
// Not among them, because they compute the same numbers as another one does, or as good as none: gate and up swapped in
// the weights and at the activation (both named as the latter, unless the two products were recorded); experts' rows in
// halves and an activation that reads halves, where biases do not tell; a window longer than the prompt and none; eps
// of 1e-6 and 1e-5 on inputs of size 1, the truncation of yarn's range in short prompts, a softcap far above the
// scores, which stay within what rounding may add and are no fault to the walk.
#pragma once

#include <cmath>

#include "debug/attention_math.h"
#include "debug/faults.h"
#include "debug/stages.h"
#include "format/decode.h"

namespace doppler::testing {

enum class Against : uint8_t { kRecording, kEverything };  // what Hugging Face recorded, or every step of the plan
enum class Side : uint8_t { kPlan, kBackend };             // who is wrong

struct UnnamedFault {
  std::string name, model;
  Against against;
  Side side;
  std::string step, cause;  // the first bad stage, and a part of the sentence
  std::function<void(AlteredModel&)> plant;
  std::function<void(const LoadedModel&, Stages& run)> spoil = {};  // instead: what a backend did that no plan can say
  double bound = 0;                                                 // --bound, where rounding explains it otherwise
};

inline void PrintTo(const UnnamedFault& fault, std::ostream* out) { *out << fault.name; }

// A change of the config, and the plan that follows from it; the weights stay.
template <class Change>
std::function<void(AlteredModel&)> config_fault(Change change) {
  return [change](AlteredModel& f) {
    change(f.config);
    rebuild(f);
  };
}

// A change of the operations of all steps whose names end so.
template <class Op, class Change>
std::function<void(AlteredModel&)> step_fault(std::string end, Change change) {
  return [end, change](AlteredModel& f) {
    for (Step& step : f.plan.steps) {
      if (step.name.size() >= end.size() && step.name.compare(step.name.size() - end.size(), end.size(), end) == 0) {
        change(std::get<Op>(step.op), step);
      }
    }
  };
}

inline void swap_weights(AlteredModel& f, const std::string& a, const std::string& b) {
  const Tensor one = f.weights.at(a);
  f.weights.add(a, f.weights.at(b));
  f.weights.add(b, one);
}

// Row r of the weight becomes row order(r) of what it was.
template <class Order>
void reorder_rows(AlteredModel& f, const std::string& slot, Order order) {
  Tensor tensor = f.weights.at(slot);
  std::vector<std::byte>& copy = f.bytes.emplace_back(tensor.bytes.size());
  for (int64_t r = 0; r < tensor.rows(); ++r) {
    std::copy_n(tensor.row(order(r)), tensor.stride(), copy.begin() + r * static_cast<std::ptrdiff_t>(tensor.stride()));
  }
  tensor.bytes = copy;
  f.weights.add(slot, tensor);
}

inline void put(AlteredModel& f, const std::string& slot, std::vector<int64_t> shape,
                const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  Tensor tensor{slot, DType::kF32, std::move(shape), f.bytes.emplace_back(bytes.begin(), bytes.end())};
  f.weights.add(slot, tensor);
}

inline std::vector<float> values_of(const Tensor& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.rows() * tensor.cols()));
  for (int64_t r = 0; r < tensor.rows(); ++r) {
    decode_row(tensor.dtype, tensor.row(r), out.data() + r * tensor.cols(), static_cast<size_t>(tensor.cols()));
  }
  return out;
}

// Attention of one layer, computed in another way.
template <class Change>
std::function<void(const LoadedModel&, Stages&)> spoiled_attention(const std::string& layer, Change change) {
  return [layer, change](const LoadedModel& model, Stages& run) {
    const Stage &q = *run.find(layer + ".q_rope"), &k = *run.find(layer + ".k_rope"), &v = *run.find(layer + ".v_proj");
    AttentionGuess guess{std::get<Attention>(model.plan.find(layer + ".attention")->op)};
    if (guess.op.sinks) guess.sinks = values_of(model.weights.at(layer + ".sinks"));
    change(guess);
    const_cast<Stage*>(run.find(layer + ".attention"))->data = attend({q.data, k.data, v.data, q.rows()}, guess);
  };
}

template <class Change>
std::function<void(const LoadedModel&, Stages&)> spoiled_values(const std::string& stage, Change change) {
  return [stage, change](const LoadedModel&, Stages& run) {
    for (float& v : const_cast<Stage*>(run.find(stage))->data) v = change(v);
  };
}

inline std::vector<UnnamedFault> faults_of_numbers() {
  using enum Against;
  using enum Side;
  return {
      {"LocalRopeBase", "gemma3-a", kRecording, kPlan, "layer0.attn_out", "rope base 1000000 where 10000 fits",
       config_fault([](ModelConfig& c) { c.ropes[static_cast<size_t>(c.layers[0].rope)].theta = 1e6; })},
      {"UnknownRopeBase", "llama-a", kRecording, kPlan, "layer0.attn_out", "rope base 10000 where 500000 fits",
       config_fault([](ModelConfig& c) { c.ropes[0].theta = 1e4; })},
      {"RopeBaseNobodyUses", "qwen3-a", kEverything, kBackend, "layer0.q_rope",
       "rope base 31000 (fitted) where the plan says 1000000",
       config_fault([](ModelConfig& c) { c.ropes[0].theta = 31000; })},
      {"RopeScalingDropped", "llama-a", kRecording, kPlan, "layer0.attn_out",
       "rope scaling none where llama3 8 (of 64) fits",
       config_fault([](ModelConfig& c) { c.ropes[0].scaling = RopeScaling::kNone; })},
      {"RopeScalingFactor", "llama-a", kRecording, kPlan, "layer0.attn_out",
       "rope scaling llama3 32 (of 64) where llama3 8 (of 64) fits",
       config_fault([](ModelConfig& c) { c.ropes[0].factor = 32; })},
      {"YarnDropped", "gptoss-a", kRecording, kPlan, "layer0.attn_out",
       "rope scaling none where yarn 32 (of 4096, not rounded) fits",
       config_fault([](ModelConfig& c) { c.ropes[0].scaling = RopeScaling::kNone; })},
      {"YarnMagnitude", "gptoss-a", kEverything, kBackend, "layer0.q_rope", "attention factor of the rope 1 where",
       config_fault([](ModelConfig& c) { c.ropes[0].attention_factor = 1; })},
      {"RotationLeftOut", "qwen3-a", kRecording, kBackend, "layer0.attn_out",
       "layer0.q_rope: computed with rotation left out where the plan says applied",
       config_fault([](ModelConfig& c) { c.ropes[0].rotated = 0; })},
      {"HalfOfTheHeadTurned", "qwen3-a", kRecording, kPlan, "layer0.attn_out",
       "turned share of a head 0.5 where 1 fits", config_fault([](ModelConfig& c) { c.ropes[0].rotated = 0.5; })},
      {"ShortFactorsOfLongRope", "phi3-cut", kRecording, kBackend, "layer0.attn_out",
       "factors of longrope the short ones where the plan says the long ones",
       config_fault([](ModelConfig& c) { c.ropes[0].long_factors = c.ropes[0].short_factors; })},
      {"PositionScaleDropped", "ministral3-cut", kRecording, kBackend, "layer0.attn_out",
       "scale by position left out where the plan says applied",
       config_fault([](ModelConfig& c) { c.ropes[0].query_beta = 0; })},
      {"QueryScale", "gemma3-a", kRecording, kPlan, "layer0.attn_out",
       "query scale 0.176777 where 0.158114 (1/√(hidden/heads)) fits",
       config_fault([](ModelConfig& c) { c.attn_scale = 1 / std::sqrt(32.f); })},
      {"QueryScaleOfItsOwn", "granite-cut", kRecording, kPlan, "layer0.attn_out", "query scale 0.204124 where 0.00781",
       config_fault([](ModelConfig& c) { c.attn_scale = 1 / std::sqrt(24.f); })},
      {"ResidualMultiplier", "granite-cut", kRecording, kPlan, "layer0.pre_ffn_norm",
       "residual multiplier 1 where 0.9 (fitted) fits", config_fault([](ModelConfig& c) { c.residual_scale = 1; })},
      {"EmbeddingScaleMissing", "gemma3-b", kRecording, kPlan, "embed",
       "embedding scale 1 where 11.3137 (√hidden) fits", config_fault([](ModelConfig& c) { c.embed_scale = 1; })},
      {"EmbeddingMultiplier", "granite-cut", kRecording, kPlan, "embed", "embedding scale 1 where 3 (fitted) fits",
       config_fault([](ModelConfig& c) { c.embed_scale = 1; })},
      {"NormOffsetOfHeads", "gemma3-a", kRecording, kPlan, "layer0.attn_out",
       "layer0.q_norm, layer0.k_norm: computed with norm offset 0 where 1 fits",
       step_fault<Norm>("_norm",
                        [](Norm& op, Step&) {
                          if (op.group == 32) op.offset = 0;
                        })},
      {"Eps", "llama-a", kEverything, kPlan, "layer0.attn_norm", "eps 0.001 where 1e-05 fits",
       config_fault([](ModelConfig& c) { c.norm_eps = 1e-3f; })},
      {"Activation", "gemma3-a", kRecording, kPlan, "layer0.ffn_out",
       "layer0.glu: computed with activation silu where gelu_tanh fits",
       config_fault([](ModelConfig& c) { c.activation = Activation::kSilu; })},
      {"ActivationOfTheBackend", "llama-a", kRecording, kBackend, "layer0.ffn_out",
       "layer0.glu: computed with activation gelu_tanh where the plan says silu",
       config_fault([](ModelConfig& c) { c.activation = Activation::kGeluTanh; })},
      {"Alpha", "gptoss-a", kRecording, kPlan, "layer0.ffn_out", "alpha of the activation 1 where 1.702 fits",
       config_fault([](ModelConfig& c) { c.swiglu_alpha = 1; })},
      {"RouterOverAll", "gptoss-a", kRecording, kPlan, "layer0.ffn_out",
       "experts' weights softmax over all experts where softmax over the chosen experts fits",
       config_fault([](ModelConfig& c) { c.route_normalized = false; })},
      {"RouterOverChosen", "qwen3moe-cut", kRecording, kBackend, "layer0.ffn_out",
       "experts' weights softmax over all experts where the plan says softmax over the chosen experts",
       config_fault([](ModelConfig& c) { c.route_normalized = false; })},
      {"SoftCapOfScores", "gemma2-a", kEverything, kBackend, "layer0.attention",
       "soft-cap of the scores none where the plan says 50", config_fault([](ModelConfig& c) { c.attn_softcap = 0; })},
      {"SoftCapOfLogits", "gemma2-a", kEverything, kPlan, "logits", "soft-cap 12 where 30 fits",
       config_fault([](ModelConfig& c) { c.logit_softcap = 12; })},
  };
}

inline std::vector<UnnamedFault> faults_of_structure() {
  using enum Against;
  using enum Side;
  return {
      {"WindowOffByOne", "gemma2-a", kRecording, kPlan, "layer0.attn_out", "window 7 where 6 fits",
       config_fault([](ModelConfig& c) {
         for (LayerConfig& l : c.layers) l.window += l.window > 0;
       })},
      {"WindowIgnored", "gptoss-a", kRecording, kBackend, "layer0.attn_out",
       "layer0.attention: computed with window none where the plan says 6", config_fault([](ModelConfig& c) {
         for (LayerConfig& l : c.layers) l.window = 0;
       })},
      {"WindowPatternShifted", "gemma2-a", kRecording, kPlan, "layer0.attn_out", "window none where 6 fits",
       config_fault([](ModelConfig& c) { std::rotate(c.layers.begin(), c.layers.begin() + 1, c.layers.end()); })},
      {"LocalLayerForGlobal", "gemma3-a", kRecording, kPlan, "layer5.attn_out",
       "layer5.attention, layer5.q_rope, layer5.k_rope: computed with window 8 where none fits, and with rope base "
       "10000 where 1000000 fits",
       config_fault([](ModelConfig& c) { c.layers[5] = c.layers[4]; })},
      {"SinksLeftOut", "gptoss-a", kRecording, kBackend, "layer0.attn_out",
       "sinks left out where the plan says applied", config_fault([](ModelConfig& c) { c.attn_sinks = false; })},
      {"BiasLeftOut", "gptoss-a", kEverything, kBackend, "layer0.attn_out",
       "layer0.attn_out: computed with bias left out where the plan says added",
       config_fault([](ModelConfig& c) { c.o_bias = false; })},
      {"BiasOfExperts", "gptoss-a", kRecording, kPlan, "layer0.ffn_out",
       "layer0.experts_down: computed with bias none where layer0.experts_down_bias fits",
       step_fault<ExpertMatMul>("experts_down", [](ExpertMatMul& op, Step&) { op.bias = false; })},
      {"NormOverTheWholeWidth", "qwen3-a", kRecording, kPlan, "layer0.attn_out",
       "norm over the whole width where 96 columns fits",
       [](AlteredModel& f) {
         for (int i = 0; i < f.config.layer_count(); ++i) {
           for (const auto& [name, heads] :
                {std::pair(".q_norm", f.config.heads), std::pair(".k_norm", f.config.kv_heads)}) {
             const std::string slot = "layer" + std::to_string(i) + name;
             const std::vector<float> head = values_of(f.weights.at(slot));
             std::vector<float> all;
             for (int h = 0; h < heads; ++h) all.insert(all.end(), head.begin(), head.end());
             put(f, slot, {static_cast<int64_t>(all.size())}, all);
           }
         }
         f.config.qk_norm_whole = true;
         rebuild(f);
       }},
      {"KeysAndValuesSwapped", "llama-a", kRecording, kPlan, "layer0.k_proj",
       "weight layer0.k_proj where layer0.v_proj fits",
       [](AlteredModel& f) { swap_weights(f, "layer0.k_proj", "layer0.v_proj"); }},
      {"NormsOfHeadsSwapped", "olmo2-cut", kRecording, kPlan, "layer0.q_norm",
       "weight layer0.q_norm where layer0.k_norm fits",
       [](AlteredModel& f) { swap_weights(f, "layer0.q_norm", "layer0.k_norm"); }},
      {"NormsAroundTheFeedForwardSwapped", "gemma2-a", kRecording, kPlan, "layer0.pre_ffn_norm",
       "weight layer0.pre_ffn_norm where layer0.post_ffn_norm fits",
       [](AlteredModel& f) { swap_weights(f, "layer0.pre_ffn_norm", "layer0.post_ffn_norm"); }},
      {"WeightsOfTheNextLayer", "qwen3-a", kRecording, kPlan, "layer1.q_proj",
       "weight layer1.q_proj where layer2.q_proj fits",
       [](AlteredModel& f) { swap_weights(f, "layer1.q_proj", "layer2.q_proj"); }},
      {"OneLayerTwice", "gemma3-b", kRecording, kPlan, "layer2.v_proj",
       "weight layer2.v_proj is byte for byte layer1.v_proj",
       [](AlteredModel& f) { f.weights.add("layer2.v_proj", f.weights.at("layer1.v_proj")); }},
      {"GateAndUpSwapped", "llama-a", kRecording, kPlan, "layer0.ffn_out",
       "layer0.glu: computed with gate and up in their order where swapped fits",
       [](AlteredModel& f) { swap_weights(f, "layer0.gate_proj", "layer0.up_proj"); }},
      {"GateAndUpInterleaved", "llama-a", kRecording, kPlan, "layer0.ffn_out",
       "layer0.gate_proj, layer0.up_proj: computed with rows of layer0.gate_proj and layer0.up_proj as they lie "
       "where "
       "interleaved in the file fits",
       [](AlteredModel& f) {
         const std::vector<float> gate = values_of(f.weights.at("layer0.gate_proj")),
                                  up = values_of(f.weights.at("layer0.up_proj"));
         const size_t cols = 128, rows = gate.size() / cols;
         std::vector<float> file;
         for (size_t r = 0; r < rows; ++r) {
           file.insert(file.end(), gate.begin() + static_cast<std::ptrdiff_t>(r * cols),
                       gate.begin() + static_cast<std::ptrdiff_t>((r + 1) * cols));
           file.insert(file.end(), up.begin() + static_cast<std::ptrdiff_t>(r * cols),
                       up.begin() + static_cast<std::ptrdiff_t>((r + 1) * cols));
         }
         const auto half = file.begin() + static_cast<std::ptrdiff_t>(file.size() / 2);
         put(f, "layer0.gate_proj", {320, 128}, {file.begin(), half});
         put(f, "layer0.up_proj", {320, 128}, {half, file.end()});
       }},
      {"TurnedPairsNotUndone", "llama-a", kRecording, kPlan, "layer0.q_proj",
       "rows of layer0.q_proj as they lie where turned pairs",
       [](AlteredModel& f) {
         for (const char* slot : {"layer0.q_proj", "layer0.k_proj"}) {
           reorder_rows(f, slot, [](int64_t r) { return r / 32 * 32 + r % 2 * 16 + r % 32 / 2; });
         }
       }},
      {"KeyHeadsReversed", "qwen3-a", kRecording, kPlan, "layer0.v_proj",
       "rows of layer0.v_proj as they lie where heads in reverse order fits",
       [](AlteredModel& f) { reorder_rows(f, "layer0.v_proj", [](int64_t r) { return (r + 96) % 192; }); }},
      {"OutputTransposed", "llama-a", kRecording, kPlan, "layer0.attn_out",
       "weight layer0.o_proj as it lies where transposed fits",
       [](AlteredModel& f) {
         const std::vector<float> w = values_of(f.weights.at("layer0.o_proj"));
         std::vector<float> turned(w.size());
         for (size_t i = 0; i < w.size(); ++i) turned[i % 128 * 128 + i / 128] = w[i];
         put(f, "layer0.o_proj", {128, 128}, turned);
       }},
      {"TiedToTheEmbedding", "llama-a", kRecording, kPlan, "logits", "weight embed where lm_head fits",
       config_fault([](ModelConfig& c) { c.tied_output = true; })},
      {"ExpertsInHalves", "gptoss-a", kEverything, kPlan, "layer0.experts_gate_up",
       "rows of layer0.experts_gate_up as they lie where",
       [](AlteredModel& f) {
         reorder_rows(f, "layer0.experts_gate_up", [](int64_t r) {
           const int64_t e = r / 192, i = r % 192;
           return e * 192 + (i < 96 ? 2 * i : 2 * (i - 96) + 1);
         });
       }},
      {"HeadsOfKeysModulo", "gptoss-a", kEverything, kBackend, "layer1.attention",
       "key head of head h h % key heads where the plan says h / group", nullptr,
       spoiled_attention("layer1", [](AttentionGuess& g) { g.map = HeadMap::kModulo; })},
      {"OwnKeyNotSeen", "llama-a", kEverything, kBackend, "layer0.attention",
       "newest key that is seen the one before where the plan says the token's own", nullptr,
       spoiled_attention("layer0", [](AttentionGuess& g) { g.newest = -1; })},
      {"NotCausal", "qwen3-a", kEverything, kBackend, "layer0.attention",
       "newest key that is seen the last of all where", nullptr,
       spoiled_attention("layer0", [](AttentionGuess& g) { g.newest = 1000; })},
      {"CacheOffByOne", "gemma3-a", kEverything, kBackend, "layer1.attention",
       "keys and values in the cache one position later where", nullptr,
       spoiled_attention("layer1", [](AttentionGuess& g) { g.key_shift = g.value_shift = 1; })},
      {"TokenLost", "llama-a", kEverything, kBackend, "layer2.attention",
       "token seen later all but that of position 17 where", nullptr,
       spoiled_attention("layer2", [](AttentionGuess& g) { g.lost = 17; })},
      {"GeluByErf", "gemma3-a", kEverything, kBackend, "layer0.glu",
       "activation gelu (erf) where the plan says gelu_tanh", nullptr,
       [](const LoadedModel&, Stages& run) {
         const Stage &gate = *run.find("layer0.gate_proj"), &up = *run.find("layer0.up_proj");
         Stage& out = const_cast<Stage&>(*run.find("layer0.glu"));
         for (size_t i = 0; i < out.data.size(); ++i) {
           const double g = gate.data[i];
           out.data[i] = static_cast<float>(0.5 * g * (1 + std::erf(g / std::sqrt(2.0))) * up.data[i]);
         }
       },
       1e-5},
  };
}

// What no list holds, what a plan lacks altogether, what is quantised, and what computes the same as something else:
// the numbers of one rope in two steps, a rope that other layers have, another number of experts.
inline std::vector<UnnamedFault> faults_off_the_lists() {
  using enum Against;
  using enum Side;
  return {
      {"ScaleByPositionMissing", "ministral3-cut", kRecording, kPlan, "layer0.attn_out",
       "layer0.q_rope: computed with scale by position none where 1 + 0.1·ln(1 + ⌊p / 16⌋) fits",
       config_fault([](ModelConfig& c) { c.ropes[0].query_beta = 0; })},
      {"BetaOfTheScaleByPosition", "ministral3-cut", kRecording, kPlan, "layer0.attn_out",
       "layer0.q_scale: computed with beta of the scale by position 0.3 where 0.1 (fitted) fits",
       config_fault([](ModelConfig& c) { c.ropes[0].query_beta = 0.3; })},
      {"OriginalContextInTwoSteps", "ministral3-cut", kRecording, kPlan, "layer0.attn_out",
       "original context of the rope scaling 64 where 16 (fitted) fits",
       config_fault([](ModelConfig& c) { c.ropes[0].original_context = 64; })},
      {"OriginalContext", "llama-a", kRecording, kPlan, "layer0.attn_out",
       "original context of the rope scaling 8192 where 64 (fitted) fits",
       config_fault([](ModelConfig& c) { c.ropes[0].original_context = 8192; })},
      {"FrequencyFactors", "llama-a", kRecording, kPlan, "layer0.attn_out",
       "frequency factors of llama3 4 and 8 where 1 and 4 fits", config_fault([](ModelConfig& c) {
         c.ropes[0].low_freq_factor = 4;
         c.ropes[0].high_freq_factor = 8;
       })},
      {"LayerThatShouldTurn", "qwen3-a", kRecording, kPlan, "layer1.attn_out",
       "rope that turns nothing where of base 1000000 fits", config_fault([](ModelConfig& c) {
         c.ropes.push_back({.rotated = 0});
         c.layers[1].rope = 1;
       })},
      {"FewerExperts", "qwen3moe-cut", kRecording, kPlan, "layer0.ffn_out", "experts of a token 2 where 3 fits",
       config_fault([](ModelConfig& c) { c.experts_per_token = 2; })},
      {"LimitOfTheActivation", "gptoss-a", kRecording, kPlan, "layer0.ffn_out",
       "limit of the activation 1 where 7 fits", config_fault([](ModelConfig& c) { c.swiglu_limit = 1; })},
      {"SinksOfAnotherLayer", "gptoss-a", kRecording, kPlan, "layer1.attn_out",
       "weight layer1.sinks where layer2.sinks fits",
       [](AlteredModel& f) { swap_weights(f, "layer1.sinks", "layer2.sinks"); }},
      {"QuantisedRotation", "qwen3-a q4_k_m", kEverything, kBackend, "layer0.q_rope",
       "rope base 10000 where the plan says 1000000", config_fault([](ModelConfig& c) { c.ropes[0].theta = 1e4; })},
      {"QuantisedWindow", "gemma2-a q4_k_m", kRecording, kPlan, "layer0.attn_out", "window none where 6 fits",
       config_fault([](ModelConfig& c) {
         for (LayerConfig& layer : c.layers) layer.window = 0;
       })},
      {"AttentionFactor", "gptoss-a", kRecording, kPlan, "layer0.attn_out",
       "attention factor of the rope 1.1 where 1.3466, the usual one fits",
       config_fault([](ModelConfig& c) { c.ropes[0].attention_factor = 1.1; })},
      // Both are x·sigmoid(1.702x).
      {"AlphaOrAnotherActivation", "gptoss-a", kRecording, kPlan, "layer0.ffn_out",
       "(so does activation gelu (x·sigmoid(1.702x)))", config_fault([](ModelConfig& c) { c.swiglu_alpha = 1; })},
  };
}

inline std::vector<UnnamedFault> unnamed_faults() {
  std::vector<UnnamedFault> all = faults_of_numbers();
  for (UnnamedFault& fault : faults_of_structure()) all.push_back(std::move(fault));
  for (UnnamedFault& fault : faults_off_the_lists()) all.push_back(std::move(fault));
  return all;
}

}  // namespace doppler::testing
