// Attention once more, plainly and in double: to show a head's pattern, and to ask "what if" of a wrong one.
#pragma once

#include <span>
#include <vector>

#include "model/plan.h"

namespace doppler {

// q [rows, heads·head_dim], k and v [rows, kv_heads·head_dim], already turned; row i is position i.
struct AttentionRows {
  std::span<const float> q, k, v;
  int rows = 0;
};

struct AttentionGuess {
  Attention op;
  int newest = 0;              // keys p + newest at most are seen by position p
  std::vector<float> sinks{};  // one logit a head, or none
};

// [rows, heads·head_dim]
std::vector<float> attend(const AttentionRows& rows, const AttentionGuess& guess);

// The weights one head gives: [rows, rows], zero where a key is not seen.
std::vector<float> attention_pattern(const AttentionRows& rows, const AttentionGuess& guess, int head);

// Turns each head by its row's position (+ shift), as the model does.
std::vector<float> apply_rope(std::span<const float> x, int width, int head_dim, const RopeTable& table, double shift);

}  // namespace doppler
