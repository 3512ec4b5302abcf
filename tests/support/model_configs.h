// Small model configurations for tests that need no checkpoint: one plain, one with every quirk at once.
#pragma once

#include <tuple>

#include "model/model_config.h"

namespace doppler::testing {

// 2 layers, no quirk.
inline ModelConfig plain_config() {
  return {.id = "plain",
          .hidden = 24,
          .ffn = 40,
          .vocab = 50,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 8,
          .max_context = 64,
          .attn_scale = 0.25f,
          .ropes = {{}},
          .layers = {{0, 0}, {0, 0}},
          .embedding = {},
          .eos_ids = {1}};
}

struct ModelSizes {
  int hidden, ffn, vocab, heads, kv_heads, head_dim;
};

inline ModelConfig with_sizes(ModelConfig c, const ModelSizes& sizes) {
  std::tie(c.hidden, c.ffn, c.vocab) = std::tie(sizes.hidden, sizes.ffn, sizes.vocab);
  std::tie(c.heads, c.kv_heads, c.head_dim) = std::tie(sizes.heads, sizes.kv_heads, sizes.head_dim);
  return c;
}

// Sandwich norms with an offset, q/k norms, windows, two ropes, soft-caps, scaled and tied embeddings.
inline ModelConfig quirky_config() {
  ModelConfig c = plain_config();
  c.id = "quirky";
  c.norm_offset = 1;
  c.embed_scale = 4.898979486f;  // sqrt(24)
  c.attn_softcap = 50;
  c.logit_softcap = 30;
  c.qk_norm = c.post_attn_norm = c.post_ffn_norm = c.tied_output = true;
  c.activation = Activation::kGeluTanh;
  c.ropes = {{.theta = 1e6, .scaling = RopeScaling::kLinear, .factor = 8}, {.theta = 1e4}};
  c.layers = {{5, 1}, {5, 1}, {0, 0}, {5, 1}};
  c.eos_ids = {1, 7};
  c.bos_id = 2;
  return c;
}

// Tokens that see both ways, and what a vector is made by.
inline ModelConfig embedding_config() {
  ModelConfig c = quirky_config();
  c.id = "embedding";
  c.causal = false;
  c.embedding = {Pooling::kMean, {40, 12}, true};
  return c;
}

// Experts, biases, sinks, YaRN.
inline ModelConfig expert_config() {
  ModelConfig c = plain_config();
  c.id = "experts";
  c.experts = 4;
  c.experts_per_token = 2;
  c.expert_bias = true;
  c.qkv_bias = c.o_bias = c.attn_sinks = true;
  c.activation = Activation::kClampedSwiglu;
  c.swiglu_limit = 7;
  c.swiglu_alpha = 1.702f;
  c.ropes = {
      {.theta = 150000, .scaling = RopeScaling::kYarn, .factor = 32, .truncate = false, .original_context = 4096}};
  c.layers = {{6, 0}, {0, 0}};
  return c;
}

// Norms after only and over all heads, a part of the head turned, a layer that turns nothing, branches and logits
// scaled, queries scaled by position.
inline ModelConfig multiplied_config() {
  ModelConfig c = plain_config();
  c.id = "multiplied";
  c.pre_norms = false;
  c.qk_norm = c.qk_norm_whole = c.post_attn_norm = c.post_ffn_norm = true;
  c.residual_scale = 0.5f;
  c.logit_scale = 0.125f;
  c.ropes = {{.rotated = 0.5,
              .scaling = RopeScaling::kLongRope,
              .factor = 4,
              .original_context = 16,
              .short_factors = {1, 1.5},
              .long_factors = {1, 3},
              .query_beta = 0.25},
             {.rotated = 0}};
  c.layers = {{0, 0}, {0, 1}, {5, 1}};
  return c;
}

// Experts without biases beside a dense layer, weighed by softmax over all of them.
inline ModelConfig sparse_config() {
  ModelConfig c = plain_config();
  c.id = "sparse";
  c.experts = 6;
  c.experts_per_token = 3;
  c.expert_ffn = 20;
  c.route_normalized = false;
  c.qk_norm = true;
  c.layers = {{0, 0}, {0, 0, true}, {0, 0}};
  return c;
}

// Short convolutions around a layer of attention.
inline ModelConfig conv_config() {
  ModelConfig c = plain_config();
  c.id = "conv";
  c.qk_norm = c.tied_output = true;
  c.conv_kernel = 3;
  c.layers = {{0, 0}, {0, 0}, {0, 0}};
  c.layers[0].mixer = c.layers[2].mixer = Mixer::kShortConv;
  return c;
}

// Delta nets with more value heads than key heads, gated attention of which a part turns, an expert for every token.
inline ModelConfig delta_config() {
  ModelConfig c = plain_config();
  c.id = "delta";
  c.norm_offset = 1;
  c.qk_norm = c.attn_gate = true;
  c.ropes = {{.rotated = 0.5}};
  c.conv_kernel = 4;
  c.delta_key_heads = 2;
  c.delta_value_heads = 4;
  c.delta_key_dim = 12;
  c.delta_value_dim = 20;
  c.layers = {{0, 0}, {0, 0}, {0, 0}};
  c.layers[0].mixer = c.layers[2].mixer = Mixer::kDeltaNet;
  return c;
}

inline ModelConfig delta_expert_config() {
  ModelConfig c = delta_config();
  c.id = "delta experts";
  c.experts = 5;
  c.experts_per_token = 2;
  c.shared_ffn = 28;
  return c;
}

// Inputs of each layer's own, values without weights in their norm; the last layers read the keys of others and are
// wider; global layers have larger heads, of whose pairs a part turns.
inline ModelConfig layer_input_config() {
  ModelConfig c = plain_config();
  c.id = "layer inputs";
  c.embed_scale = 6.5f;
  c.attn_scale = 1;
  c.logit_softcap = 30;
  c.qk_norm = c.v_norm = c.post_attn_norm = c.post_ffn_norm = c.tied_output = c.layer_scale = true;
  c.activation = Activation::kGeluTanh;
  c.layer_input = 12;
  c.ropes = {{.theta = 1e6, .rotated = 0.25, .scaling = RopeScaling::kProportional}, {}};
  c.layers = {{5, 1}, {0, 0}, {5, 1}, {0, 0}, {5, 1}};
  c.layers[1].head_dim = c.layers[3].head_dim = 2 * c.head_dim;
  c.layers[3].keys_of = 1;
  c.layers[4].keys_of = 2;
  c.layers[3].ffn = c.layers[4].ffn = 2 * c.ffn;
  return c;
}

// A feed-forward and experts side by side; global layers whose keys are their values, too.
inline ModelConfig beside_config() {
  ModelConfig c = layer_input_config();
  c.id = "beside";
  c.layer_input = 0;
  c.ffn_beside_experts = true;
  c.experts = 5;
  c.experts_per_token = 2;
  c.expert_ffn = 20;
  c.layers = {{5, 1}, {0, 0}, {5, 1}};
  c.layers[1].head_dim = 2 * c.head_dim;
  c.layers[1].kv_heads = 1;
  c.layers[1].values_are_keys = true;
  return c;
}

}  // namespace doppler::testing

// Tests name what is here without its namespace.
namespace doppler {
using namespace testing;
}  // namespace doppler
