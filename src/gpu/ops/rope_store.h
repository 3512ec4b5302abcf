// From raw projections to what attention reads: norm and rotary embedding of q and k, and the store of k and v.
#pragma once

#include "gpu/ops/attention_shape.h"

namespace doppler::gpu {

// Raw projections, f32: row t of q starts at q_offset + t · q_stride, and so on. Three buffers, or one three times.
// Offsets and strides are counted in f32 and even.
struct Projections {
  BoundBuffer q, k, v;
  uint32_t q_offset = 0, q_stride = 0;
  uint32_t k_offset = 0, k_stride = 0;
  uint32_t v_offset = 0, v_stride = 0;
};

// q, k and v side by side in rows of one buffer.
Projections packed_projections(const BoundBuffer& qkv, const AttentionShape& shape);
// Each in a buffer of its own.
Projections separate_projections(const BoundBuffer& q, const BoundBuffer& k, const BoundBuffer& v,
                                 const AttentionShape& shape);

struct RopeStoreBuffers {
  BoundBuffer state;    // DecodeState
  BoundBuffer weights;  // head_weights()
  BoundBuffer rope;     // rope_tables()
  BoundBuffer cache;    // kv_bytes()
  BoundBuffer q_out;    // f32 [tokens, heads · head_dim], rotated
};

Variant choose_rope_store(const Capabilities& capabilities);

size_t record_rope_store(Recording& recording, const std::string& step, const AttentionShape& shape,
                         const HeadNorm& norm, const Projections& projections, const RopeStoreBuffers& buffers,
                         uint32_t tokens, const FirstPosition& first);

}  // namespace doppler::gpu
