#include "model/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace doppler {
namespace {

// Grows a plan one step at a time; every method returns the index of the value it makes.
class Builder {
 public:
  explicit Builder(const ModelConfig& config) : c_(config) {}

  Plan build() {
    int x = step("embed", Embed{c_.embed_scale}, {}, c_.hidden, {{"embed", {c_.vocab, c_.hidden}}});
    for (layer_ = 0; layer_ < c_.layer_count(); ++layer_) {
      x = attention_block(x);
      x = c_.experts > 0 ? expert_block(x) : dense_block(x);
    }
    layer_ = -1;
    logits_only_ = true;
    x = norm("final_norm", x, c_.hidden);
    const WeightUse output{c_.tied_output ? "embed" : "lm_head", {c_.vocab, c_.hidden}};
    if (c_.logit_softcap > 0) {
      x = step("raw_logits", MatMul{}, {x}, c_.vocab, {output});
      step("logits", SoftCap{c_.logit_softcap}, {x}, c_.vocab, {});
    } else {
      step("logits", MatMul{}, {x}, c_.vocab, {output});
    }
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

  int norm(const char* name, int x, int group) {
    return step(name, Norm{group, c_.norm_eps, c_.norm_offset}, {x}, plan_.values[static_cast<size_t>(x)].width,
                {{place(name), {group}}});
  }

  int matmul(const char* name, const char* slot, int x, int width, const char* bias_slot) {
    std::vector<WeightUse> weights{{place(slot), {width, plan_.values[static_cast<size_t>(x)].width}}};
    if (bias_slot) weights.push_back({place(bias_slot), {width}});
    return step(name, MatMul{bias_slot != nullptr}, {x}, width, std::move(weights));
  }

  int add(const char* name, int a, int b) { return step(name, Add{}, {a, b}, c_.hidden, {}); }

  int attention_block(int x) {
    const LayerConfig& layer = c_.layers[static_cast<size_t>(layer_)];
    const int h = norm("attn_norm", x, c_.hidden);
    int q = matmul("q_proj", "q_proj", h, c_.q_width(), c_.qkv_bias ? "q_bias" : nullptr);
    int k = matmul("k_proj", "k_proj", h, c_.kv_width(), c_.qkv_bias ? "k_bias" : nullptr);
    const int v = matmul("v_proj", "v_proj", h, c_.kv_width(), c_.qkv_bias ? "v_bias" : nullptr);
    if (c_.qk_norm) {
      q = norm("q_norm", q, c_.head_dim);
      k = norm("k_norm", k, c_.head_dim);
    }
    q = step("q_rope", Rope{c_.head_dim, layer.rope}, {q}, c_.q_width(), {});
    k = step("k_rope", Rope{c_.head_dim, layer.rope}, {k}, c_.kv_width(), {});
    std::vector<WeightUse> sinks;
    if (c_.attn_sinks) sinks.push_back({place("sinks"), {c_.heads}});
    const Attention attention{layer_,       c_.heads,      c_.kv_heads,     c_.head_dim,
                              layer.window, c_.attn_scale, c_.attn_softcap, c_.attn_sinks};
    const int mixed = step("attention", attention, {q, k, v}, c_.q_width(), std::move(sinks));
    int out = matmul("attn_out", "o_proj", mixed, c_.hidden, c_.o_bias ? "o_bias" : nullptr);
    if (c_.post_attn_norm) out = norm("post_attn_norm", out, c_.hidden);
    return add("attn_residual", x, out);
  }

  int dense_block(int x) {
    const int h = norm("pre_ffn_norm", x, c_.hidden);
    const int gate = matmul("gate_proj", "gate_proj", h, c_.ffn, nullptr);
    const int up = matmul("up_proj", "up_proj", h, c_.ffn, nullptr);
    const Glu glu{c_.activation, false, c_.swiglu_limit, c_.swiglu_alpha};
    const int activated = step("glu", glu, {gate, up}, c_.ffn, {});
    int out = matmul("ffn_out", "down_proj", activated, c_.hidden, nullptr);
    if (c_.post_ffn_norm) out = norm("post_ffn_norm", out, c_.hidden);
    return add("out", x, out);
  }

  int expert_block(int x) {
    const int k = c_.experts_per_token, e = c_.experts;
    const int h = norm("pre_ffn_norm", x, c_.hidden);
    const int scores = matmul("router", "router", h, e, "router_bias");
    const int route = step("route", Route{k}, {scores}, 2 * k, {});
    const int gate_up = step(
        "experts_gate_up", ExpertMatMul{k, false, true}, {h, route}, k * 2 * c_.ffn,
        {{place("experts_gate_up"), {e, 2 * c_.ffn, c_.hidden}}, {place("experts_gate_up_bias"), {e, 2 * c_.ffn}}});
    const Glu glu{c_.activation, true, c_.swiglu_limit, c_.swiglu_alpha};
    const int activated = step("glu", glu, {gate_up}, k * c_.ffn, {});
    const int down =
        step("experts_down", ExpertMatMul{k, true, true}, {activated, route}, k * c_.hidden,
             {{place("experts_down"), {e, c_.hidden, c_.ffn}}, {place("experts_down_bias"), {e, c_.hidden}}});
    int out = step("ffn_out", Combine{k}, {down, route}, c_.hidden, {});
    if (c_.post_ffn_norm) out = norm("post_ffn_norm", out, c_.hidden);
    return add("out", x, out);
  }

  const ModelConfig& c_;
  Plan plan_;
  int layer_ = -1;
  bool logits_only_ = false;
};

struct Describe {
  std::string operator()(const Embed& op) const { return fmt::format("scale {:g}", op.scale); }
  std::string operator()(const Norm& op) const {
    return fmt::format("group {} eps {:g} offset {:g}", op.group, op.eps, op.offset);
  }
  std::string operator()(const MatMul& op) const { return op.bias ? "with bias" : ""; }
  std::string operator()(const Rope& op) const { return fmt::format("head_dim {} rope {}", op.head_dim, op.rope); }
  std::string operator()(const Attention& op) const {
    std::string text = fmt::format("heads {}/{} dim {} scale {:g}", op.heads, op.kv_heads, op.head_dim, op.scale);
    text += op.window ? fmt::format(" window {}", op.window) : std::string(" global");
    if (op.softcap > 0) text += fmt::format(" softcap {:g}", op.softcap);
    if (op.sinks) text += " sinks";
    return text;
  }
  std::string operator()(const Glu& op) const {
    std::string text(name_of(op.activation));
    if (op.interleaved) text += " interleaved";
    if (op.limit > 0) text += fmt::format(" limit {:g} alpha {:g}", op.limit, op.alpha);
    return text;
  }
  std::string operator()(const Add&) const { return ""; }
  std::string operator()(const Route& op) const { return fmt::format("top {}", op.k); }
  std::string operator()(const ExpertMatMul& op) const {
    return fmt::format("{} experts{}", op.k, op.bias ? ", with bias" : "");
  }
  std::string operator()(const Combine& op) const { return fmt::format("{} experts", op.k); }
  std::string operator()(const SoftCap& op) const { return fmt::format("cap {:g}", op.cap); }
};

}  // namespace

std::string_view op_name(const Operation& op) {
  static constexpr std::string_view kNames[] = {"embed", "norm",  "matmul",        "rope",    "attention", "glu",
                                                "add",   "route", "expert_matmul", "combine", "softcap"};
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
