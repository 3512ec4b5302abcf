// Attention once more, plainly and in double: to show a head's pattern, and to ask "what if" of a wrong one.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "model/plan.h"

namespace doppler {

// q [queries, heads·head_dim], k and v [rows, kv_heads·head_dim], already turned; row i of k and v is position i.
struct AttentionRows {
  std::span<const float> q, k, v;
  int rows = 0;
  std::span<const int> positions{};  // of q's rows; empty: row i is position i
};

// Which key head a head reads: neighbours share one (the model's way), every kv_heads-th does, or counted backwards.
enum class HeadMap : uint8_t { kNeighbours, kModulo, kBackwards };

// A page of the cache that a table does not show: queries from `since` on read the keys and values at positions `begin`
// to begin + size - 1 from those that begin at `other`.
struct StalePage {
  int begin = 0, other = 0, size = 0;  // size 0: no page is stale
  int since = 0;
};

struct AttentionGuess {
  Attention op;
  int newest = 0;              // keys p + op.ahead + newest at most are seen by position p
  std::vector<float> sinks{};  // one logit a head, or none
  HeadMap map = HeadMap::kNeighbours;
  int key_shift = 0,
      value_shift = 0;  // what lies at position j is token j - shift's; nothing (zeros) where there is none
  int lost = -1;        // later tokens do not see this one
  StalePage stale = {};
};

// [queries, heads·head_dim]
std::vector<float> attend(const AttentionRows& rows, const AttentionGuess& guess);

// The weights one head gives: [rows, rows], zero where a key is not seen.
std::vector<float> attention_pattern(const AttentionRows& rows, const AttentionGuess& guess, int head);

// Turns each head by its row's position, as the model does, or pairs of neighbouring dims instead of halves.
std::vector<float> apply_rope(std::span<const float> x, int width, int head_dim, const RopeTable& table,
                              const std::function<double(size_t row)>& position, bool neighbours = false);

}  // namespace doppler
