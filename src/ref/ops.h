// The truth: every operation of the Plan in plain code, sums in double. Nothing here is fast.
// Activations are f32 [tokens, width], row after row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/tensor.h"
#include "model/adapters.h"
#include "model/model_config.h"
#include "model/plan.h"

namespace doppler::ref {

using In = std::span<const float>;
using Out = std::span<float>;

// A whole tensor as f32 [rows, cols].
std::vector<float> decode(const Tensor& tensor);

// out[t] = row token[t] of the embedding matrix · scale
void embed(const Tensor& matrix, std::span<const int32_t> tokens, float scale, Out out);

// out = x / sqrt(mean(x²) + eps) · (offset + w), over consecutive groups of w.size() elements
void norm(In x, In w, float eps, float offset, Out out);

// out [n, rows] = x [n, cols] · wᵀ (+ bias [rows])
void matmul(In x, const Tensor& w, In bias, Out out);

// out [n, pair.out] += scale · pair.scale · B (A x), x [n, pair.in]
void add_lora(const LoraPair& pair, float scale, In x, Out out);

// Turns heads of head_dim columns, the first dims of each as the table says; row t is position first + t.
// width = heads · head_dim.
void rope(In x, int width, int head_dim, const RopeTable& table, int first, Out out);

// q [n, heads·dim]; keys and values [first + n, kv_heads·dim] for positions 0 … first+n-1, all there are; row t is
// position first+t.
// sinks: one logit per head, or empty.
void attention(const Attention& op, In q, In keys, In values, In sinks, int first, Out out);

// One gate and up pair at a time: a(gate) · up as `op` says. gate_up holds them interleaved.
float glu(const Glu& op, float gate, float up);
void glu(const Glu& op, In gate, In up, Out out);  // one_gate: a gate for out.size() / gate.size() columns
void glu_interleaved(const Glu& op, In gate_up, Out out);

void add(In a, In b, float scale, Out out);  // a + scale · b
// Rows of `width`, row t of position first + t.
void scale(const Scale& op, In x, int width, int first, Out out);
void softcap(In x, float cap, Out out);
void softmax(In x, Out out);

// x [n, op.channels], or [n, 3·channels] where it is gated; w [channels, kernel]. `state` [kernel-1, channels] is what
// came before and becomes what comes before the next.
void short_conv(const ShortConv& op, In x, In w, Out state, Out out);
// qkv [n, …], b and a [n, value_heads]; decay and dt [value_heads]; `state` [value_heads, key_dim, value_dim] goes on.
void delta_net(const DeltaNet& op, In qkv, In b, In a, In decay, In dt, Out state, Out out);
void part(const Part& op, In x, Out out);

// scores [experts] of one token → out [2k]: the k highest experts' numbers (ties: the lower number first), then
// their weights, times what `scale` [experts] has for them, where it is not empty.
void route(const Route& op, In scores, In scale, Out out);

// One token: x [cols] or [k·cols], route as above → out [k·rows].
void expert_matmul(const ExpertMatMul& op, In x, const Tensor& w, In bias, In route, Out out);

// One token: expert outputs [k·width], route → out [width].
void combine(int k, In experts, In route, Out out);

}  // namespace doppler::ref
