// Operations on single elements or rows: additions, copies, activations, RMSNorm, the rotary embedding, embeddings.
#pragma once

#include "gpu/ops/weight.h"
#include "gpu/webgpu/recording.h"
#include "model/plan.h"

namespace doppler::gpu {

// out = a + scale · b: the residual stream's addition.
Variant choose_add(const Capabilities& capabilities);

// All three are f32 [count]; `out` is neither a nor b.
void record_add(Recording& recording, const std::string& step, const BoundBuffer& a, const BoundBuffer& b,
                const BoundBuffer& out, uint64_t count, float scale = 1);

// A copy by a kernel, inside a compute pass (Recording::copy ends the pass).
Variant choose_copy(const Capabilities& capabilities);

// `bytes` is a multiple of 16.
void record_copy(Recording& recording, const std::string& step, const BoundBuffer& from, const BoundBuffer& to,
                 uint64_t bytes);

// What a GPU's memory can do, by which kernels are judged.

// Bytes per second that a large copy reads and writes, the best of a few. `adapter` as in DeviceOptions.
double measure_copy_bandwidth(int adapter);

// out = cap · tanh(x / cap): the output logits' soft-cap.
Variant choose_softcap(const Capabilities& capabilities);

// f32 [count] both; `out` is not x.
void record_softcap(Recording& recording, const std::string& step, const BoundBuffer& x, const BoundBuffer& out,
                    uint64_t count, float cap);

// out = x · factor · (1 + beta · ln(1 + ⌊position / length⌋)) over rows of `width`, the first of position
// DecodeState::position.
Variant choose_scale(const Capabilities& capabilities);

// f32 [count] both; `out` is not x.
void record_scale(Recording& recording, const std::string& step, const Scale& op, const BoundBuffer& state,
                  const BoundBuffer& x, const BoundBuffer& out, uint64_t count, uint32_t width);

// The gated activation of the feed-forward: out = a(gate) · up.

// The number of an activation in ops/elementwise.wgsl.
uint32_t activation_number(Activation activation);

Variant choose_glu(const Capabilities& capabilities, const Glu& op);

// gate and up f32 [count], or interleaved in `gate` [2 · count] with `up` unused; out f32 [count]. With one_gate a gate
// is for `columns` of them.
void record_glu(Recording& recording, const std::string& step, const Glu& op, const BoundBuffer& gate,
                const BoundBuffer& up, const BoundBuffer& out, uint64_t count, uint32_t columns = 1);

// Some of every group of columns: the parts of rows that one product made (plan.h).
Variant choose_part(const Capabilities& capabilities);

// x f32 [parts · count], out f32 [count].
void record_part(Recording& recording, const std::string& step, const Part& op, const BoundBuffer& x,
                 const BoundBuffer& out, uint64_t count);

// RMSNorm over groups of columns: a whole row, or a head for q and k.
struct NormShape {
  uint64_t groups = 0;  // rows · (width / group)
  uint32_t width = 0;   // of a group
};

Variant choose_norm(const Capabilities& capabilities, const NormShape& shape);

// out = x / sqrt(mean(x²) + eps) · (offset + weight); x and out f32 [groups, width], weight f32 [width].
void record_norm(Recording& recording, const std::string& step, const BoundBuffer& x, const BoundBuffer& weight,
                 const BoundBuffer& out, const NormShape& shape, float eps, float offset);

// The rotary embedding by itself, for taps and for queries alone: where there are keys, too, they are turned on the way
// into attention and the cache (attention.h).
struct RopeShape {
  uint32_t tokens = 1, heads = 0, head_dim = 0, dims = 0;  // dims: of a head, that turn
};

Variant choose_rope(const Capabilities& capabilities);

// table: rope_tables(); x and out f32 [tokens, heads · head_dim], from DecodeState::position on.
void record_rope(Recording& recording, const std::string& step, const RopeShape& shape, const BoundBuffer& state,
                 const BoundBuffer& table, const BoundBuffer& x, const BoundBuffer& out);

// Rows of the embedding matrix for token ids, decoded from the packed bytes.
Variant choose_embed(const Capabilities& capabilities, DType dtype);

// tokens u32, `count` of them from index `first_token` on, each below matrix.rows (others leave their row of `out` as
// it is); out f32 [count, matrix.cols].
void record_embed(Recording& recording, const std::string& step, const Weight& matrix, const BoundBuffer& tokens,
                  const BoundBuffer& out, uint64_t count, float scale, uint32_t first_token = 0);

}  // namespace doppler::gpu
