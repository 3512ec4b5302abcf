// What a model is, as numbers. No family name appears here or anywhere past conversion: a quirk is a value
// (window of layer i, rope of layer i, norm offset, soft-cap, scale, expert count; dense means no experts).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace doppler {

enum class Activation : uint8_t {
  kGeluTanh,       // gelu_tanh(gate) · up
  kSilu,           // silu(gate) · up
  kClampedSwiglu,  // g = min(gate, limit), u = clamp(up, ±limit): g · sigmoid(alpha·g) · (u + 1)
  kSigmoid,        // sigmoid(gate) · up: not a feed-forward's
};
std::string_view name_of(Activation activation);

// kProportional: pairs are those of the whole head, i and i + head_dim/2 with the frequencies of all its dims, and the
// first `rotated` of them turn.
enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn, kLongRope, kProportional };

// Half-split rotary embedding of a head's first r = rotated · head_dim dims: i and i + r/2 turn by pos · inv_freq[i].
struct RopeConfig {
  double theta = 10000;
  double rotated = 1;  // share of the head's dims that turn; 0 turns nothing
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;                                 // linear, llama3, yarn
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // yarn: round the correction range to whole dims
  // What cos and sin are multiplied by. 0: yarn 0.1·ln(factor) + 1, longrope √(1 + ln(factor) / ln(original_context)).
  double attention_factor = 0;
  double original_context = 0;  // llama3, yarn, longrope
  // longrope: what each frequency is divided by, r/2 of them. The long ones where a context is longer than the
  // original.
  std::vector<double> short_factors = {}, long_factors = {};
  // Queries, once turned, are multiplied by 1 + query_beta · ln(1 + ⌊position / original_context⌋).
  double query_beta = 0;

  bool operator==(const RopeConfig&) const = default;
};

// The same for every backend: angles are pos · inv_freq[i], and cos and sin are multiplied by `magnitude`.
struct RopeTable {
  std::vector<float> inv_freq;  // [rotary_dims() / 2]
  float magnitude = 1;
};
// `context`: the tokens that a sequence may have. All keys of a sequence must be turned by the same frequencies, so it
// is not its length that decides between the factors of longrope.
RopeTable make_rope_table(const RopeConfig& rope, int head_dim, int context = 0);
int rotary_dims(const RopeConfig& rope, int head_dim);  // of a head; some of a proportional rope's do not turn

// What lets the tokens of a layer see each other.
enum class Mixer : uint8_t {
  kAttention,
  kShortConv,  // a gated convolution over the last few tokens
  kDeltaNet,   // a gated delta rule: a matrix a head that every token changes
};
std::string_view name_of(Mixer mixer);

// How the rows that the final norm makes of a text's tokens become one.
enum class Pooling : uint8_t { kNone, kMean, kLast };
std::string_view name_of(Pooling pooling);

// What a model that makes one vector of a text does behind its final norm (Plan::dense).
struct EmbeddingConfig {
  Pooling pooling = Pooling::kNone;  // kNone: the model makes text
  std::vector<int> dense;            // widths of the matrices that the pooled row goes through, one after another
  bool normalize = true;             // the vector gets length 1

  bool operator==(const EmbeddingConfig&) const = default;
};
inline constexpr size_t kMaxDense = 16;

struct LayerConfig {
  int window = 0;      // keys pos-window+1 … pos are seen; 0 sees all (see ModelConfig::causal)
  int rope = 0;        // index into ModelConfig::ropes
  bool dense = false;  // has no experts, though the model has
  Mixer mixer = Mixer::kAttention;
  int head_dim = 0, kv_heads = 0, ffn = 0;  // where they are not the model's; 0: they are
  bool values_are_keys = false;             // k_proj makes both, before k's norm
  int keys_of = -1;                         // an earlier layer whose keys and values it attends to; -1: its own

  bool operator==(const LayerConfig&) const = default;
};

inline constexpr int kMaxConvKernel = 16;
inline constexpr int kMaxDeltaKeyDim = 256;

struct ModelConfig {
  std::string id;  // a name to print
  int hidden = 0, ffn = 0, vocab = 0;
  int heads = 0, kv_heads = 0, head_dim = 0;
  int max_context = 0;  // tokens the model was made for

  float norm_eps = 1e-6f;
  float norm_offset = 0;  // every norm multiplies by (offset + w)
  float embed_scale = 1;
  float attn_scale = 1;      // scores are q·k · attn_scale
  float attn_softcap = 0;    // cap · tanh(score / cap) before the mask; 0 is none
  float logit_softcap = 0;   // likewise for the output logits
  float logit_scale = 1;     // of the output logits, before their soft-cap
  float residual_scale = 1;  // of a branch, where it is added to the residual stream

  bool qk_norm = false;         // before rope; per head, over head_dim …
  bool qk_norm_whole = false;   // … or over all heads together
  bool v_norm = false;          // of values, per head and without weights
  bool pre_norms = true;        // norms before attention and before the feed-forward
  bool post_attn_norm = false;  // sandwich norms: on the branch, before its residual add
  bool post_ffn_norm = false;
  bool qkv_bias = false, o_bias = false;
  bool attn_sinks = false;   // one learned logit a head joins the softmax's denominator
  bool attn_gate = false;    // q_proj holds a gate beside each head's query, which attention's output goes through
  bool tied_output = false;  // the output matrix is the embedding matrix
  // false: a token sees those behind it, too, all or those up to window / 2 tokens away to either side. A text then
  // runs whole, in one pass, and makes no text.
  bool causal = true;

  Activation activation = Activation::kSilu;
  float swiglu_limit = 0, swiglu_alpha = 0;  // kClampedSwiglu only
  int experts = 0, experts_per_token = 0;    // 0: dense
  int expert_ffn = 0;                        // of one expert; 0: ffn
  bool expert_bias = false;                  // router and experts have biases
  bool route_normalized = true;  // the chosen experts' weights add up to one; else they are softmax over all experts

  int shared_ffn = 0;  // of an expert that every token takes, behind a gate of its own; 0: none
  // Experts stand beside the feed-forward, each between norms of its own. Their router norms what it reads and scales
  // by 1/√hidden, and what it chooses has a learned weight besides.
  bool ffn_beside_experts = false;

  // What a layer's last step multiplies by is learned, one number a layer.
  bool layer_scale = false;
  // Each layer adds, behind its feed-forward, a projection of so many numbers of the token's own: a row of a table
  // [vocab, layers · layer_input] and a projection of the embedding, gated by the residual stream. 0: none.
  int layer_input = 0;

  // Layers with other mixers than attention.
  int conv_kernel = 0;  // tokens that a convolution sees
  int delta_key_heads = 0, delta_value_heads = 0, delta_key_dim = 0, delta_value_dim = 0;

  std::vector<RopeConfig> ropes;
  std::vector<LayerConfig> layers;
  EmbeddingConfig embedding;

  std::vector<int32_t> eos_ids;  // any of these ends an answer
  int32_t bos_id = -1;           // -1: none

  bool makes_text() const { return embedding.pooling == Pooling::kNone; }
  // Numbers of a text's vector.
  int embedding_width() const { return embedding.dense.empty() ? hidden : embedding.dense.back(); }
  int layer_count() const { return static_cast<int>(layers.size()); }
  int q_width() const { return heads * head_dim; }
  int kv_width() const { return kv_heads * head_dim; }
  const LayerConfig& layer(int i) const { return layers[static_cast<size_t>(i)]; }
  int head_dim_of(int i) const { return layer(i).head_dim > 0 ? layer(i).head_dim : head_dim; }
  int kv_heads_of(int i) const { return layer(i).kv_heads > 0 ? layer(i).kv_heads : kv_heads; }
  int kv_width_of(int i) const { return kv_heads_of(i) * head_dim_of(i); }
  int ffn_of(int i) const { return layer(i).ffn > 0 ? layer(i).ffn : ffn; }
  int head_dim_of_rope(int rope) const;  // of the layers that have it
  int delta_key_width() const { return delta_key_heads * delta_key_dim; }
  int delta_value_width() const { return delta_value_heads * delta_value_dim; }

  bool operator==(const ModelConfig&) const = default;
};

// Fails with a sentence if the numbers cannot describe a model (zero sizes, heads not divisible, odd head_dim, …).
void check(const ModelConfig& config, const std::string& where);

// The artefact's manifest and back (RDRR: architecture, inference, moeConfig, eos_token_id).
// Writing adds these keys to `manifest`; reading accepts artefacts written by others with fewer of them.
void write_model_config(const ModelConfig& config, Json& manifest);
ModelConfig read_model_config(const Json& manifest, const std::string& where);

}  // namespace doppler
