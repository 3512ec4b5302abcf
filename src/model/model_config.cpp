#include "model/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace doppler {

std::string_view name_of(Activation activation) {
  switch (activation) {
    case Activation::kGeluTanh: return "gelu_tanh";
    case Activation::kSilu: return "silu";
    case Activation::kClampedSwiglu: return "clamped_swiglu";
    case Activation::kSigmoid: return "sigmoid";
  }
  return "?";
}

std::string_view name_of(Mixer mixer) {
  switch (mixer) {
    case Mixer::kAttention: return "attention";
    case Mixer::kShortConv: return "short_conv";
    case Mixer::kDeltaNet: return "delta_net";
  }
  return "?";
}

std::string_view name_of(Pooling pooling) {
  switch (pooling) {
    case Pooling::kNone: return "none";
    case Pooling::kMean: return "mean";
    case Pooling::kLast: return "last";
  }
  return "?";
}

int ModelConfig::head_dim_of_rope(int rope) const {
  for (int i = 0; i < layer_count(); ++i) {
    if (layer(i).rope == rope && layer(i).mixer == Mixer::kAttention) return head_dim_of(i);
  }
  return head_dim;
}

namespace {

// What a layer has in its own way. Called when the model's own numbers are known to be fine.
template <class Refuse, class Size>
void check_layer(const ModelConfig& c, int i, const Refuse& refuse, const Size& size) {
  const LayerConfig& layer = c.layer(i);
  if (layer.window < 0) refuse("a layer's window is negative", "", std::to_string(layer.window));
  if (layer.rope < 0 || layer.rope >= static_cast<int>(c.ropes.size())) {
    refuse("a layer names a rotary embedding that is not there", fmt::format("0 to {}", c.ropes.size()),
           std::to_string(layer.rope));
  }
  size("a layer's head size", c.head_dim_of(i), 4096);
  size("a layer's number of key/value heads", c.kv_heads_of(i), 4096);
  size("a layer's feed-forward size", c.ffn_of(i), 1 << 22);
  if (layer.mixer != Mixer::kAttention) return;
  if (c.head_dim_of(i) % 2 || c.head_dim_of(i) != c.head_dim_of_rope(layer.rope)) {
    refuse("layers with one rotary embedding must have heads of one even size",
           std::to_string(c.head_dim_of_rope(layer.rope)), std::to_string(c.head_dim_of(i)));
  }
  if (c.heads % c.kv_heads_of(i)) {
    refuse("query heads must share key/value heads evenly", fmt::format("a multiple of {}", c.kv_heads_of(i)),
           std::to_string(c.heads));
  }
  if (layer.keys_of == -1) return;
  const auto same = [&](int other) {
    return c.layer(other).keys_of == -1 && c.layer(other).mixer == Mixer::kAttention &&
           c.layer(other).window == layer.window && c.kv_heads_of(other) == c.kv_heads_of(i) &&
           c.head_dim_of(other) == c.head_dim_of(i);
  };
  if (layer.keys_of < 0 || layer.keys_of >= i || !same(layer.keys_of)) {
    refuse("a layer shares keys and values that it cannot read",
           "those of an earlier layer with the same window and heads", fmt::format("{} of {}", i, layer.keys_of));
  }
}

}  // namespace

void check(const ModelConfig& c, const std::string& where) {
  const auto refuse = [&](std::string what, std::string expected, std::string got) {
    fail({.code = ErrorCode::kFormat,
          .what = std::move(what),
          .where = where,
          .expected = std::move(expected),
          .got = std::move(got),
          .todo = "The model's configuration is damaged or of a kind this engine does not know"});
  };
  // Far above any published model, far below what would overflow the sizes computed from them.
  const auto size = [&](const char* name, int value, int largest) {
    if (value < 1 || value > largest) {
      refuse(fmt::format("{} is out of range", name), fmt::format("1 to {}", largest), std::to_string(value));
    }
  };
  size("the number of layers", c.layer_count(), 4096);
  size("the hidden size", c.hidden, 1 << 20);
  size("the feed-forward size", c.ffn, 1 << 22);
  size("the feed-forward size of an expert", c.expert_ffn > 0 ? c.expert_ffn : c.ffn, 1 << 22);
  size("the vocabulary", c.vocab, 1 << 24);
  size("the number of heads", c.heads, 4096);
  size("the number of key/value heads", c.kv_heads, 4096);
  size("the head size", c.head_dim, 4096);
  size("the longest context", c.max_context, 1 << 28);
  if (c.head_dim % 2) refuse("the head size must be even for rotary embeddings", "", std::to_string(c.head_dim));
  if (c.heads % c.kv_heads) {
    refuse("query heads must share key/value heads evenly", fmt::format("a multiple of {}", c.kv_heads),
           std::to_string(c.heads));
  }
  if (c.experts < 0 || c.experts > 4096 || c.experts_per_token < 0 || c.experts_per_token > c.experts) {
    refuse("the experts do not add up", "experts per token between 1 and the number of experts",
           fmt::format("{} of {}", c.experts_per_token, c.experts));
  }
  const auto has = [&](Mixer mixer) {
    return std::any_of(c.layers.begin(), c.layers.end(), [&](const LayerConfig& l) { return l.mixer == mixer; });
  };
  if (has(Mixer::kShortConv) || has(Mixer::kDeltaNet)) {
    size("the tokens that a convolution sees, less one,", c.conv_kernel - 1, kMaxConvKernel - 1);
  }
  if (has(Mixer::kDeltaNet)) {
    size("the number of the delta rule's key heads", c.delta_key_heads, 4096);
    size("the number of the delta rule's value heads", c.delta_value_heads, 4096);
    size("the size of the delta rule's keys", c.delta_key_dim, kMaxDeltaKeyDim);
    size("the size of the delta rule's values", c.delta_value_dim, 4096);
    if (c.delta_value_heads % c.delta_key_heads) {
      refuse("value heads must share key heads evenly", fmt::format("a multiple of {}", c.delta_key_heads),
             std::to_string(c.delta_value_heads));
    }
  }
  if (c.shared_ffn < 0 || c.shared_ffn > (1 << 22) || (c.shared_ffn > 0 && c.experts == 0)) {
    refuse("the shared expert's size is out of range", "0 to 2^22, beside others", std::to_string(c.shared_ffn));
  }
  if (c.layer_input < 0 || c.layer_input > (1 << 16)) {
    refuse("the size of a layer's own inputs is out of range", "0 to 2^16", std::to_string(c.layer_input));
  }
  if (c.ffn_beside_experts && (c.experts == 0 || c.shared_ffn > 0)) {
    refuse("a feed-forward beside experts needs experts, and none that every token takes", "experts",
           fmt::format("{}", c.experts));
  }
  if (c.experts > 0 && c.experts_per_token == 0) refuse("a model with experts must use some", "", "0 per token");
  if (!(c.norm_eps >= 0 && c.norm_eps < 1))
    refuse("the norm's epsilon is out of range", "0 to 1", fmt::format("{}", c.norm_eps));
  // A number that is too large for a float is infinite here.
  const auto finite = [&](const char* name, float value, float smallest) {
    if (std::isfinite(value) && value >= smallest) return;
    refuse(fmt::format("{} is out of range", name), "", fmt::format("{}", value));
  };
  const float any = std::numeric_limits<float>::lowest(), positive = std::numeric_limits<float>::min();
  finite("the norm's offset", c.norm_offset, any);
  finite("the embedding's scale", c.embed_scale, any);
  finite("the attention's scale", c.attn_scale, positive);
  finite("the attention's soft-cap", c.attn_softcap, 0);
  finite("the logits' soft-cap", c.logit_softcap, 0);
  finite("the logits' scale", c.logit_scale, positive);
  finite("the residual scale", c.residual_scale, any);
  finite("the activation's limit", c.swiglu_limit, 0);
  finite("the activation's slope", c.swiglu_alpha, any);
  for (const RopeConfig& rope : c.ropes) {
    if (!(rope.theta > 1) || !(rope.factor > 0)) {
      refuse("a rotary embedding is out of range", "theta > 1 and factor > 0",
             fmt::format("theta {}, factor {}", rope.theta, rope.factor));
    }
    const int head_dim = c.head_dim_of_rope(static_cast<int>(&rope - c.ropes.data()));
    if (!(rope.rotated >= 0 && rope.rotated <= 1) || rotary_dims(rope, head_dim) % 2) {
      refuse("a rotary embedding turns an impossible part of a head", "an even number of dims",
             fmt::format("{} of {}", rope.rotated, head_dim));
    }
    if (rope.scaling == RopeScaling::kLongRope) {
      const auto pairs = static_cast<size_t>(rotary_dims(rope, head_dim) / 2);
      for (const std::vector<double>* factors : {&rope.short_factors, &rope.long_factors}) {
        const bool positive_all = std::all_of(factors->begin(), factors->end(), [](double f) { return f > 0; });
        if (factors->size() == pairs && positive_all) continue;
        refuse("longrope needs a positive factor for each pair of dims that turns", std::to_string(pairs),
               std::to_string(factors->size()));
      }
    }
    const bool needs_original = (rope.scaling != RopeScaling::kNone && rope.scaling != RopeScaling::kLinear &&
                                 rope.scaling != RopeScaling::kProportional) ||
                                rope.query_beta != 0;
    if (needs_original && !(rope.original_context > 0)) {
      refuse("this rope scaling needs the original context length", "a positive number",
             fmt::format("{}", rope.original_context));
    }
  }
  const auto token = [&](const char* name, int32_t id, int32_t smallest) {
    if (id >= smallest && id < c.vocab) return;
    refuse(fmt::format("{} is no token", name), fmt::format("{} to {}", smallest, c.vocab - 1), std::to_string(id));
  };
  token("the token that begins a text", c.bos_id, -1);
  for (const int32_t id : c.eos_ids) token("a token that ends an answer", id, 0);
  for (int i = 0; i < c.layer_count(); ++i) check_layer(c, i, refuse, size);
  if (c.embedding.dense.size() > kMaxDense || (c.makes_text() && !c.embedding.dense.empty())) {
    refuse("the dense layers behind a text's row do not add up", fmt::format("up to {}, behind a pooling", kMaxDense),
           std::to_string(c.embedding.dense.size()));
  }
  for (const int width : c.embedding.dense) size("the width of a dense layer", width, 1 << 20);
  if (c.causal) return;
  if (c.makes_text()) {
    refuse("tokens see those behind them, so the model makes no text, but nothing says how it makes a vector",
           "mean or last token pooling (modules.json of a Hugging Face folder)", "none");
  }
  if (std::any_of(c.layers.begin(), c.layers.end(),
                  [](const LayerConfig& l) { return l.mixer != Mixer::kAttention; })) {
    refuse("a layer goes on from a state, though tokens see those behind them", "attention in every layer", "");
  }
}

}  // namespace doppler
