// Slots of tensors that do not name them: the names Hugging Face decoders have in common.
#include <charconv>

#include "format/rdrr.h"

namespace doppler {
namespace {

struct Rule {
  std::string_view name, slot;
};

constexpr Rule kOutside[] = {
    {"embed_tokens.weight", "embed"}, {"norm.weight", "final_norm"}, {"lm_head.weight", "lm_head"}};

constexpr Rule kInLayer[] = {
    {"input_layernorm.weight", "attn_norm"},
    {"self_attn.q_proj.weight", "q_proj"},
    {"self_attn.k_proj.weight", "k_proj"},
    {"self_attn.v_proj.weight", "v_proj"},
    {"self_attn.o_proj.weight", "o_proj"},
    {"self_attn.q_proj.bias", "q_bias"},
    {"self_attn.k_proj.bias", "k_bias"},
    {"self_attn.v_proj.bias", "v_bias"},
    {"self_attn.o_proj.bias", "o_bias"},
    {"self_attn.q_norm.weight", "q_norm"},
    {"self_attn.k_norm.weight", "k_norm"},
    {"self_attn.sinks", "sinks"},
    {"pre_feedforward_layernorm.weight", "pre_ffn_norm"},
    {"post_feedforward_layernorm.weight", "post_ffn_norm"},
    {"mlp.gate_proj.weight", "gate_proj"},
    {"mlp.up_proj.weight", "up_proj"},
    {"mlp.down_proj.weight", "down_proj"},
    {"mlp.router.weight", "router"},
    {"mlp.router.bias", "router_bias"},
    {"mlp.experts.gate_up_proj", "experts_gate_up"},
    {"mlp.experts.gate_up_proj_bias", "experts_gate_up_bias"},
    {"mlp.experts.down_proj", "experts_down"},
    {"mlp.experts.down_proj_bias", "experts_down_bias"},
};

}  // namespace

std::string infer_slot(std::string_view name, bool has_pre_feedforward_norm) {
  for (std::string_view prefix : {"language_model.", "model.", "language_model."}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  for (const Rule& rule : kOutside) {
    if (rule.name == name) return std::string(rule.slot);
  }
  constexpr std::string_view kLayers = "layers.";
  if (!name.starts_with(kLayers)) return "";
  name.remove_prefix(kLayers.size());
  unsigned layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  const auto digits = static_cast<size_t>(end - name.data());
  if (error != std::errc() || digits >= name.size() || name[digits] != '.') return "";
  name.remove_prefix(digits + 1);
  const std::string place = "layer" + std::to_string(layer) + ".";
  if (name == "post_attention_layernorm.weight") {
    return place + (has_pre_feedforward_norm ? "post_attn_norm" : "pre_ffn_norm");
  }
  for (const Rule& rule : kInLayer) {
    if (rule.name == name) return place + std::string(rule.slot);
  }
  return "";
}

}  // namespace doppler
