// Weights by slot: the name a step knows a tensor by, whatever the checkpoint called it.
//
// Slots: embed, final_norm, lm_head, and for layer i: layer{i}.attn_norm, q_proj, k_proj, v_proj, o_proj (and
// q_bias, k_bias, v_bias, o_bias), q_norm, k_norm, sinks, post_attn_norm, pre_ffn_norm, gate_proj, up_proj,
// down_proj, post_ffn_norm, router, router_bias, experts_gate_up, experts_gate_up_bias, experts_down,
// experts_down_bias, shared_gate_proj, shared_up_proj, shared_down_proj, shared_expert_gate; of a short convolution
// conv_in, conv_kernel, conv_out; of a delta net delta_qkv, delta_z, delta_b, delta_a, delta_conv, delta_decay,
// delta_dt, delta_norm, delta_out; of inputs of a layer's own per_layer_embed, per_layer_model_proj and
// per_layer_proj_norm, and per layer per_layer_gate, per_layer_proj, post_per_layer_norm; of experts beside a
// feed-forward post_ffn_norm_1, pre_ffn_norm_2, post_ffn_norm_2, router_norm, route_scale; layer_scale. Behind
// the final norm of a model that makes vectors dense0, dense1, …. Sandwich norms
// are post_attn_norm and post_ffn_norm; the norm before the feed-forward is pre_ffn_norm in every family.
#pragma once

#include <map>
#include <string>

#include "format/tensor.h"
#include "model/plan.h"

namespace doppler {

// True for the types that all fast backends have kernels for, and that the CPU has: their matrices are used as they
// are.
bool has_kernels(DType type);
bool has_cpu_kernels(DType type);

class Weights {
 public:
  void add(std::string slot, Tensor tensor);
  const Tensor* find(const std::string& slot) const;
  const Tensor& at(const std::string& slot) const;  // fails, naming the slot
  const std::map<std::string, Tensor>& all() const { return by_slot_; }

 private:
  std::map<std::string, Tensor> by_slot_;
};

// Is the weight read row by row where it lies, and held by no backend? (Embed::mapped)
bool stays_in_file(const Plan& plan, const std::string& slot);

// The factor of a Scale with what it learned.
float factor_of(const Step& step, const Weights& weights);

// Every weight the plan uses is there with the shape it needs, and nothing is there that the plan does not use.
// Returns the faults as sentences; empty means they agree.
std::vector<std::string> weight_faults(const Plan& plan, const Weights& weights);

}  // namespace doppler
