// Exact values of a stage at chosen tokens and columns: 'stage=logits,tokens=-1,dims=476,3868'.
#pragma once

#include "debug/stages.h"

namespace doppler {

struct Probe {
  std::string stage;
  std::vector<int> tokens{-1};  // positions; negative count from the end
  std::vector<int> dims;        // columns; empty: all
  std::string id;               // stands before its values, where there is one
};

// A step of the plan, or a word that stands for one: layer3.q_rope, or q_rope of several layers, each a probe of its
// own. Keys: stage, layers (all of `tapped` where it is left out; empty: of the plan), tokens, dims, id. Fails with a
// sentence where the text is no probe or names what the plan does not have.
std::vector<Probe> parse_probe(const std::string& text, const Plan& plan, std::span<const int> tapped = {});

// The steps that a word stands for in these layers (empty: all). A word without a layer is the last part of a step's
// name, or one of those that other programs have for it: embed_out, attn_input, attn_normed, attn_out (what attention
// puts out, before its projection), o_proj, post_attn, ffn_in, ffn_normed, ffn_gate, ffn_up, ffn_act, layer_out,
// pre_final_norm, logits_final.
std::vector<std::string> steps_of_word(const std::string& word, const Plan& plan, std::span<const int> layers);

struct ProbedValue {
  std::string stage;
  int position = 0, column = 0;
  float value = 0;
};
// Fails for positions and columns that are not there, and for stages that were not tapped.
std::vector<ProbedValue> probe(const Probe& probe, const Stages& stages);

}  // namespace doppler
