#include "model/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <tuple>

namespace doppler {
namespace {

// Grows a plan one step at a time; every method returns the index of the value it makes.
class Builder {
 public:
  explicit Builder(const ModelConfig& config) : c_(config) {}

  Plan build() {
    int x = step("embed", Embed{c_.embed_scale}, {}, c_.hidden, {{"embed", {c_.vocab, c_.hidden}}});
    if (c_.layer_input > 0) layer_inputs_ = layer_inputs(x);
    for (layer_ = 0; layer_ < c_.layer_count(); ++layer_) {
      x = mixer_block(x);
      const bool dense = c_.experts == 0 || c_.layers[static_cast<size_t>(layer_)].dense;
      x = dense ? dense_block(x) : c_.ffn_beside_experts ? double_block(x) : expert_block(x);
      if (c_.layer_input > 0) x = layer_input_block(x);
      if (c_.layer_scale) x = step("out", Scale{1}, {x}, c_.hidden, {{place("layer_scale"), {1}}});
    }
    layer_ = -1;
    logits_only_ = true;
    x = norm("final_norm", x, c_.hidden);
    if (!c_.makes_text()) {
      int width = c_.hidden;
      for (const int out : c_.embedding.dense) {
        plan_.dense.push_back({fmt::format("dense{}", plan_.dense.size()), {out, width}});
        width = out;
      }
      return std::move(plan_);
    }
    const WeightUse output{c_.tied_output ? "embed" : "lm_head", {c_.vocab, c_.hidden}};
    const bool scaled = c_.logit_scale != 1, capped = c_.logit_softcap > 0;
    x = step(scaled || capped ? "raw_logits" : "logits", MatMul{}, {x}, c_.vocab, {output});
    if (scaled) x = step(capped ? "scaled_logits" : "logits", Scale{c_.logit_scale}, {x}, c_.vocab, {});
    if (capped) step("logits", SoftCap{c_.logit_softcap}, {x}, c_.vocab, {});
    return std::move(plan_);
  }

 private:
  std::string place(const char* name) const { return layer_ < 0 ? name : fmt::format("layer{}.{}", layer_, name); }

  int step(const char* name, Operation op, std::vector<int> inputs, int width, std::vector<WeightUse> weights) {
    const int value = static_cast<int>(plan_.values.size());
    plan_.values.push_back({place(name), width});
    plan_.steps.push_back(
        {place(name), std::move(op), std::move(inputs), value, std::move(weights), layer_, logits_only_});
    return value;
  }

  int norm(const char* name, int x, int group) { return norm(name, name, x, group, c_.norm_offset); }
  int norm(const char* name, const char* slot, int x, int group, float offset) {
    return step(name, Norm{group, c_.norm_eps, offset}, {x}, plan_.values[static_cast<size_t>(x)].width,
                {{place(slot), {group}}});
  }

  int norm_without_weights(const char* name, int x, int group) {
    return step(name, Norm{group, c_.norm_eps, 0}, {x}, plan_.values[static_cast<size_t>(x)].width, {});
  }

  int matmul(const char* name, const char* slot, int x, int width, const char* bias_slot) {
    std::vector<WeightUse> weights{{place(slot), {width, plan_.values[static_cast<size_t>(x)].width}}};
    if (bias_slot) weights.push_back({place(bias_slot), {width}});
    return step(name, MatMul{bias_slot != nullptr}, {x}, width, std::move(weights));
  }

  // The name of the residual sum behind a layer's feed-forward.
  const char* ffn_residual() const { return c_.layer_input > 0 || c_.layer_scale ? "ffn_residual" : "out"; }

  int add(const char* name, int a, int b) { return step(name, Add{c_.residual_scale}, {a, b}, c_.hidden, {}); }

  int mixer_block(int x) {
    const LayerConfig& layer = c_.layers[static_cast<size_t>(layer_)];
    const int h = c_.pre_norms ? norm("attn_norm", x, c_.hidden) : x;
    int out = layer.mixer == Mixer::kShortConv  ? short_conv(h)
              : layer.mixer == Mixer::kDeltaNet ? delta_net(h)
                                                : attention(h);
    if (c_.post_attn_norm) out = norm("post_attn_norm", out, c_.hidden);
    return add("attn_residual", x, out);
  }

  int short_conv(int h) {
    const int in = matmul("conv.in_proj", "conv_in", h, 3 * c_.hidden, nullptr);
    const ShortConv conv{layer_, states_++, c_.hidden, c_.conv_kernel, true, false};
    const int mixed =
        step("conv.mixed", conv, {in}, c_.hidden, {{place("conv_kernel"), {c_.hidden, 1, c_.conv_kernel}}});
    return matmul("conv", "conv_out", mixed, c_.hidden, nullptr);
  }

  int delta_net(int h) {
    const int heads = c_.delta_value_heads, width = c_.delta_value_width();
    const int channels = 2 * c_.delta_key_width() + width;
    const int qkv = matmul("linear_attn.in_proj_qkv", "delta_qkv", h, channels, nullptr);
    const int z = matmul("linear_attn.in_proj_z", "delta_z", h, width, nullptr);
    const int b = matmul("linear_attn.in_proj_b", "delta_b", h, heads, nullptr);
    const int a = matmul("linear_attn.in_proj_a", "delta_a", h, heads, nullptr);
    const ShortConv conv{layer_, states_++, channels, c_.conv_kernel, false, true};
    const int mixed =
        step("linear_attn.conv1d", conv, {qkv}, channels, {{place("delta_conv"), {channels, 1, c_.conv_kernel}}});
    const DeltaNet delta{layer_, states_++, c_.delta_key_heads, heads, c_.delta_key_dim, c_.delta_value_dim};
    const int read = step("linear_attn.delta", delta, {mixed, b, a}, width,
                          {{place("delta_decay"), {heads}}, {place("delta_dt"), {heads}}});
    const int normed = norm("linear_attn.delta_norm", "delta_norm", read, c_.delta_value_dim, 0);
    const int gated = step("linear_attn.norm", Glu{Activation::kSilu}, {z, normed}, width, {});
    return matmul("linear_attn", "delta_out", gated, c_.hidden, nullptr);
  }

  int attention(int h) {
    const LayerConfig& layer = c_.layer(layer_);
    const RopeConfig& rope = c_.ropes[static_cast<size_t>(layer.rope)];
    const int dim = c_.head_dim_of(layer_), q_width = c_.heads * dim, kv_width = c_.kv_width_of(layer_);
    const int rows = c_.attn_gate ? 2 * q_width : q_width;
    const bool shares = layer.keys_of >= 0;
    int q = matmul("q_proj", "q_proj", h, rows, c_.qkv_bias ? "q_bias" : nullptr), gate = -1, k = -1, v = -1;
    if (shares) {
      std::tie(k, v) = kept_[layer.keys_of];
    } else {
      k = v = matmul("k_proj", "k_proj", h, kv_width, c_.qkv_bias ? "k_bias" : nullptr);
      if (!layer.values_are_keys) v = matmul("v_proj", "v_proj", h, kv_width, c_.qkv_bias ? "v_bias" : nullptr);
    }
    if (c_.attn_gate) {
      gate = step("q_gate", Part{dim, 2, 1}, {q}, q_width, {});
      q = step("query", Part{dim, 2, 0}, {q}, q_width, {});
    }
    if (c_.qk_norm) {
      q = norm("q_norm", q, c_.qk_norm_whole ? q_width : dim);
      if (!shares) k = norm("k_norm", k, c_.qk_norm_whole ? kv_width : dim);
    }
    if (c_.v_norm && !shares) v = norm_without_weights("v_norm", v, dim);
    if (rope.query_beta != 0) {  // turning and scaling can change places
      const Scale scale{1, static_cast<float>(rope.query_beta), static_cast<int>(rope.original_context)};
      q = step("q_scale", scale, {q}, q_width, {});
    }
    const Rope turn{dim, layer.rope, rotary_dims(rope, dim)};
    q = step("q_rope", turn, {q}, q_width, {});
    if (!shares) k = step("k_rope", turn, {k}, kv_width, {});
    std::vector<WeightUse> sinks;
    if (c_.attn_sinks) sinks.push_back({place("sinks"), {c_.heads}});
    const Attention attention{shares ? layer.keys_of : layer_,
                              c_.heads,
                              c_.kv_heads_of(layer_),
                              dim,
                              c_.causal || layer.window == 0 ? layer.window : layer.window / 2 + 1,
                              c_.attn_scale,
                              c_.attn_softcap,
                              c_.attn_sinks,
                              shares,
                              c_.causal           ? 0
                              : layer.window == 0 ? kAllAhead
                                                  : layer.window / 2};
    kept_[layer_] = {k, v};
    int mixed = step("attention", attention, {q, k, v}, q_width, std::move(sinks));
    if (c_.attn_gate) mixed = step("attn_gated", Glu{Activation::kSigmoid}, {gate, mixed}, q_width, {});
    return matmul("attn_out", "o_proj", mixed, c_.hidden, c_.o_bias ? "o_bias" : nullptr);
  }

  int dense_block(int x) {
    int out = feed_forward(x);
    if (c_.post_ffn_norm) out = norm("post_ffn_norm", out, c_.hidden);
    return add(ffn_residual(), x, out);
  }

  int feed_forward(int x) {
    const int h = c_.pre_norms ? norm("pre_ffn_norm", x, c_.hidden) : x, ffn = c_.ffn_of(layer_);
    const int gate = matmul("gate_proj", "gate_proj", h, ffn, nullptr);
    const int up = matmul("up_proj", "up_proj", h, ffn, nullptr);
    const Glu glu{c_.activation, false, c_.swiglu_limit, c_.swiglu_alpha};
    const int activated = step("glu", glu, {gate, up}, ffn, {});
    return matmul("ffn_out", "down_proj", activated, c_.hidden, nullptr);
  }

  // For every token what all layers will add: [layers · layer_input].
  int layer_inputs(int x) {
    const int own = c_.layer_input, all = c_.layer_count() * own;
    const Embed row{static_cast<float>(std::sqrt(own)), true};
    const int looked_up = step("per_layer_embed", row, {}, all, {{"per_layer_embed", {c_.vocab, all}}});
    int made = matmul("per_layer_model_proj", "per_layer_model_proj", x, all, nullptr);
    made = step("per_layer_scaled", Scale{static_cast<float>(1 / std::sqrt(c_.hidden))}, {made}, all, {});
    made = norm("per_layer_proj_norm", made, own);
    const int sum = step("per_layer_sum", Add{1}, {made, looked_up}, all, {});
    return step("per_layer_inputs", Scale{static_cast<float>(std::sqrt(0.5))}, {sum}, all, {});
  }

  int layer_input_block(int x) {
    const int own = c_.layer_input;
    const int gate = matmul("per_layer_input_gate", "per_layer_gate", x, own, nullptr);
    const int input = step("per_layer_input", Part{own, c_.layer_count(), layer_}, {layer_inputs_}, own, {});
    const int gated = step("per_layer_gated", Glu{c_.activation}, {gate, input}, own, {});
    const int out = matmul("per_layer_projection", "per_layer_proj", gated, c_.hidden, nullptr);
    const int normed = norm("post_per_layer_input_norm", "post_per_layer_norm", out, c_.hidden, c_.norm_offset);
    return add(c_.layer_scale ? "per_layer_residual" : "out", x, normed);
  }

  // A feed-forward and experts of the same x, which the router reads, too.
  int double_block(int x) {
    const int k = c_.experts_per_token, e = c_.experts;
    const int dense = norm("post_ffn_norm_1", feed_forward(x), c_.hidden);
    int scores = norm("router_norm", "router_norm", x, c_.hidden, 0);
    scores = step("router_scaled", Scale{static_cast<float>(1 / std::sqrt(c_.hidden))}, {scores}, c_.hidden, {});
    scores = matmul("router", "router", scores, e, nullptr);
    const int route = step("route", Route{k, !c_.route_normalized}, {scores}, 2 * k, {{place("route_scale"), {e}}});
    const int h = norm("pre_ffn_norm_2", x, c_.hidden);
    const int chosen = norm("post_ffn_norm_2", experts("experts", "experts_glu", h, route), c_.hidden);
    int out = step("ffn_sum", Add{1}, {dense, chosen}, c_.hidden, {});
    if (c_.post_ffn_norm) out = norm("post_ffn_norm", out, c_.hidden);
    return add(ffn_residual(), x, out);
  }

  int expert_block(int x) {
    const int k = c_.experts_per_token, e = c_.experts;
    const bool bias = c_.expert_bias;
    const int h = c_.pre_norms ? norm("pre_ffn_norm", x, c_.hidden) : x;
    const int scores = matmul("router", "router", h, e, bias ? "router_bias" : nullptr);
    const int route = step("route", Route{k, !c_.route_normalized}, {scores}, 2 * k, {});
    const bool shared = c_.shared_ffn > 0;
    int out = experts(shared ? "experts_out" : "ffn_out", "glu", h, route);
    if (shared) out = step("ffn_out", Add{1}, {out, shared_expert(h)}, c_.hidden, {});
    if (c_.post_ffn_norm) out = norm("post_ffn_norm", out, c_.hidden);
    return add(ffn_residual(), x, out);
  }

  // The sum of those that the route chose.
  int experts(const char* name, const char* glu_name, int h, int route) {
    const int k = c_.experts_per_token, e = c_.experts, ffn = c_.expert_ffn > 0 ? c_.expert_ffn : c_.ffn;
    const bool bias = c_.expert_bias;
    std::vector<WeightUse> up{{place("experts_gate_up"), {e, 2 * ffn, c_.hidden}}};
    if (bias) up.push_back({place("experts_gate_up_bias"), {e, 2 * ffn}});
    const int gate_up = step("experts_gate_up", ExpertMatMul{k, false, bias}, {h, route}, k * 2 * ffn, std::move(up));
    const Glu glu{c_.activation, true, c_.swiglu_limit, c_.swiglu_alpha};
    const int activated = step(glu_name, glu, {gate_up}, k * ffn, {});
    std::vector<WeightUse> out_of{{place("experts_down"), {e, c_.hidden, ffn}}};
    if (bias) out_of.push_back({place("experts_down_bias"), {e, c_.hidden}});
    const int down =
        step("experts_down", ExpertMatMul{k, true, bias}, {activated, route}, k * c_.hidden, std::move(out_of));
    return step(name, Combine{k}, {down, route}, c_.hidden, {});
  }

  int shared_expert(int h) {
    const int gate = matmul("shared_gate_proj", "shared_gate_proj", h, c_.shared_ffn, nullptr);
    const int up = matmul("shared_up_proj", "shared_up_proj", h, c_.shared_ffn, nullptr);
    const Glu glu{c_.activation, false, c_.swiglu_limit, c_.swiglu_alpha};
    const int activated = step("shared_glu", glu, {gate, up}, c_.shared_ffn, {});
    const int out = matmul("shared_expert", "shared_down_proj", activated, c_.hidden, nullptr);
    const int weight = matmul("shared_expert_gate", "shared_expert_gate", h, 1, nullptr);
    const Glu weigh{.activation = Activation::kSigmoid, .one_gate = true};
    return step("shared_expert_gated", weigh, {weight, out}, c_.hidden, {});
  }

  const ModelConfig& c_;
  Plan plan_;
  int states_ = 0;
  int layer_inputs_ = -1;
  std::map<int, std::pair<int, int>> kept_;  // by layer: what attention put into its cache
  int layer_ = -1;
  bool logits_only_ = false;
};

struct Describe {
  std::string operator()(const Embed& op) const {
    return fmt::format("scale {:g}{}", op.scale, op.mapped ? ", read row by row" : "");
  }
  std::string operator()(const Norm& op) const {
    return fmt::format("group {} eps {:g} offset {:g}", op.group, op.eps, op.offset);
  }
  std::string operator()(const MatMul& op) const { return op.bias ? "with bias" : ""; }
  std::string operator()(const Rope& op) const {
    const std::string dims = op.dims == op.head_dim ? "" : fmt::format(" dims {}", op.dims);
    return fmt::format("head_dim {}{} rope {}", op.head_dim, dims, op.rope);
  }
  std::string operator()(const Attention& op) const {
    std::string text = fmt::format("heads {}/{} dim {} scale {:g}", op.heads, op.kv_heads, op.head_dim, op.scale);
    text += op.window ? fmt::format(" window {}", op.window) : std::string(" global");
    if (op.ahead == kAllAhead) text += " both ways";
    if (op.ahead > 0 && op.ahead < kAllAhead) text += fmt::format(" ahead {}", op.ahead);
    if (op.softcap > 0) text += fmt::format(" softcap {:g}", op.softcap);
    if (op.sinks) text += " sinks";
    if (op.shared) text += fmt::format(" keys of layer {}", op.layer);
    return text;
  }
  std::string operator()(const Glu& op) const {
    std::string text(name_of(op.activation));
    if (op.interleaved) text += " interleaved";
    if (op.limit > 0) text += fmt::format(" limit {:g} alpha {:g}", op.limit, op.alpha);
    if (op.one_gate) text += " one gate";
    return text;
  }
  std::string operator()(const Add& op) const { return op.scale == 1 ? "" : fmt::format("scale {:g}", op.scale); }
  std::string operator()(const Route& op) const {
    return fmt::format("top {}{}", op.k, op.over_all ? ", softmax over all" : "");
  }
  std::string operator()(const ExpertMatMul& op) const {
    return fmt::format("{} experts{}", op.k, op.bias ? ", with bias" : "");
  }
  std::string operator()(const Combine& op) const { return fmt::format("{} experts", op.k); }
  std::string operator()(const SoftCap& op) const { return fmt::format("cap {:g}", op.cap); }
  std::string operator()(const Scale& op) const {
    const std::string later = fmt::format(", {:g} more with the logarithm of position / {}", op.beta, op.length);
    return fmt::format("factor {:g}{}", op.factor, op.beta != 0 ? later : "");
  }
  std::string operator()(const ShortConv& op) const {
    return fmt::format("kernel {}{}{} state {}", op.kernel, op.gated ? " gated" : "", op.silu ? " silu" : "", op.state);
  }
  std::string operator()(const DeltaNet& op) const {
    return fmt::format("heads {}/{} dims {}×{} state {}", op.value_heads, op.key_heads, op.key_dim, op.value_dim,
                       op.state);
  }
  std::string operator()(const Part& op) const {
    return fmt::format("{} of {}, each {}", op.index + 1, op.parts, op.width);
  }
};

}  // namespace

std::string_view op_name(const Operation& op) {
  static constexpr std::string_view kNames[] = {"embed",   "norm",  "matmul",     "rope",          "attention",
                                                "glu",     "add",   "route",      "expert_matmul", "combine",
                                                "softcap", "scale", "short_conv", "delta_net",     "part"};
  static_assert(std::size(kNames) == std::variant_size_v<Operation>);
  return kNames[op.index()];
}

const Step* Plan::find(std::string_view step_name) const {
  for (const Step& step : steps) {
    if (step.name == step_name) return &step;
  }
  return nullptr;
}

Plan build_plan(const ModelConfig& config) { return Builder(config).build(); }

std::string describe(const Step& step, const Plan& plan) {
  std::vector<std::string> inputs;
  for (int input : step.inputs) inputs.push_back(plan.values[static_cast<size_t>(input)].name);
  std::string text = fmt::format("{:<24} {:<13} [{}]", step.name, op_name(step.op),
                                 plan.values[static_cast<size_t>(step.output)].width);
  if (!inputs.empty()) text += fmt::format(" <- {}", fmt::join(inputs, ", "));
  for (const WeightUse& use : step.weights) text += fmt::format("  {}[{}]", use.slot, fmt::join(use.shape, "×"));
  const std::string parameters = std::visit(Describe{}, step.op);
  if (!parameters.empty()) text += "  (" + parameters + ")";
  return text;
}

}  // namespace doppler
