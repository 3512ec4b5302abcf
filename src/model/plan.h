// The Plan: what a model computes, as a flat list of steps built once from ModelConfig. It is data: printable,
// checkable, and the same for every backend. A step's name is its stage name; a trace, a probe, a reference tensor
// and an error message all use it.
//
// All values are f32 [tokens, width]; the plan does not know how many tokens run at once.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "model/model_config.h"

namespace doppler {

struct Value {
  std::string name;  // of the step that makes it
  int width = 0;
};

// A weight a step reads, by slot ("layer3.q_proj"; see weights.h). Shapes as the step needs them.
struct WeightUse {
  std::string slot;
  std::vector<int64_t> shape;  // [out, in], [width], or [experts, out, in]
};

// --- the operations. `in` below are Step::inputs, `w` are Step::weights, by position.

struct Embed {  // out = w0[token] · scale
  float scale = 1;
  bool mapped = false;  // w0 stays in its file: rows are read there, one a token, and no backend holds it
};
// out = x / sqrt(mean(x²) + eps) · (offset + w0), over groups of `group` columns (a head, or the row). Without w0 only
// divided.
struct Norm {
  int group = 0;
  float eps = 0, offset = 0;
};
struct MatMul {  // out = x · w0ᵀ (+ w1)
  bool bias = false;
};
struct Rope {                  // turns the first `dims` of each head of head_dim columns by its token's position
  int head_dim = 0, rope = 0;  // rope: index into ModelConfig::ropes
  int dims = 0;                // rotary_dims(): dims i and i + dims/2 are a pair, the others stay as they are
};
// in: q [heads·head_dim], k and v [kv_heads·head_dim]. Appends k and v to the cache of `layer`, then
// out[h] = Σ softmax(scale · q[h]·k[j]) · v[j] over the keys the window lets position p see: p-window+1 … p+ahead, of
// those there are.
struct Attention {
  int layer = 0, heads = 0, kv_heads = 0, head_dim = 0, window = 0;
  float scale = 1, softcap = 0;
  bool sinks = false;   // w0: one logit a head
  bool shared = false;  // an earlier step of the same `layer` and the same k and v has appended them
  int ahead = 0;        // keys behind p that it sees; more than 0: a sequence's tokens run in one pass
};
// in: x [channels], or gated [3·channels]: B, C and u behind each other, and x = B·u. w0 [channels, 1, kernel], the
// last tap is the current token's. out [channels] = Σ w0[·][i] · x of token t-kernel+1+i, zero before the sequence;
// through silu, or times C where it is gated. State: x of the last kernel-1 tokens, [kernel-1][channels].
struct ShortConv {
  int layer = 0, state = 0;  // number among the plan's states (state_layout.h)
  int channels = 0, kernel = 0;
  bool gated = false, silu = false;
};
// in: q, k and v behind each other [2·key_heads·key_dim + value_heads·value_dim], b and a [value_heads].
// w0, w1 [value_heads]. With q and k of value head h those of key head h / (value_heads / key_heads), each divided by
// √(Σ² + eps), and q by √key_dim too: S ← S · exp(−exp(w0) · softplus(a + w1)), S ← S + k (sigmoid(b) · (v − Sᵀk))ᵀ,
// out [value_heads·value_dim] = Sᵀq. State: S, [value_heads][key_dim][value_dim].
struct DeltaNet {
  int layer = 0, state = 0;
  int key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  float eps = 1e-6f;
};
struct Part {  // of every group of parts·width columns those from index·width on, `width` of them
  int width = 0, parts = 1, index = 0;
};
struct Glu {  // in: gate, up (same width). Or one input of twice the width with gate and up interleaved.
  Activation activation = Activation::kSilu;
  bool interleaved = false;
  float limit = 0, alpha = 0;
  bool one_gate = false;  // gate [1], for all columns of the row
};
struct Add {  // out = in0 + scale · in1
  float scale = 1;
};
// in: router logits [experts]. out [2·k]: the k chosen experts' numbers, then their weights: softmax over those k, or
// over all experts (then they add up to less than one). w0 [experts], where there is one, multiplies the weights.
struct Route {
  int k = 0;
  bool over_all = false;
};
// in: x, route. Runs the chosen experts only: out [k·rows], expert by expert, in the route's order.
// w0 [experts, rows, cols], w1 its bias [experts, rows]. x is [cols] for all, or [k·cols] when `per_expert`.
struct ExpertMatMul {
  int k = 0;
  bool per_expert = false, bias = false;
};
struct Combine {  // in: expert outputs [k·width], route. out = Σ weight_i · expert_i
  int k = 0;
};
struct SoftCap {  // out = cap · tanh(in / cap)
  float cap = 0;
};
struct Scale {  // out = in · factor · (1 + beta · ln(1 + ⌊position / length⌋)), and · w0 [1] where there is one
  float factor = 1;
  float beta = 0;  // 0: positions make no difference
  int length = 1;
};

using Operation = std::variant<Embed, Norm, MatMul, Rope, Attention, Glu, Add, Route, ExpertMatMul, Combine, SoftCap,
                               Scale, ShortConv, DeltaNet, Part>;
std::string_view op_name(const Operation& op);

struct Step {
  std::string name;  // "layer3.attn_norm"; also the name of `output`
  Operation op;
  std::vector<int> inputs;  // indices into Plan::values
  int output = -1;
  std::vector<WeightUse> weights;
  int layer = -1;            // -1 outside the layers
  bool logits_only = false;  // runs only for positions whose logits are asked for (after the last layer)
};

inline constexpr int kAllAhead = 1 << 30;  // Attention::ahead: every key behind p

struct Plan {
  std::vector<Value> values;
  std::vector<Step> steps;
  // Of a model that makes a vector of a text: its last step is the final norm, and what is done with the row that the
  // norm's rows become is done by the host (engine/embedding.h): row ← w · row, one after another. Shapes [out, in].
  std::vector<WeightUse> dense;
  int input = -1;  // of a stage (stages.h): the value that no step makes, whose rows are handed in; -1: a whole plan

  const Step* find(std::string_view step_name) const;
};

Plan build_plan(const ModelConfig& config);

// One line per step: name, op, inputs, weights, parameters.
std::string describe(const Step& step, const Plan& plan);

}  // namespace doppler
