// Attention of a block of tokens whose keys and values are in the cache already (rope_store).
#pragma once

#include "gpu/ops/attention_shape.h"

namespace doppler::gpu {

struct AttentionPrefillBuffers {
  BoundBuffer state;    // DecodeState
  BoundBuffer q;        // f32 [tokens, heads · head_dim], rotated
  BoundBuffer cache;    // kv_bytes()
  BoundBuffer weights;  // head_weights()
  BoundBuffer out;      // as q
};

Variant choose_attention_prefill(const Capabilities& capabilities, const AttentionShape& shape, uint32_t tokens);

size_t record_attention_prefill(Recording& recording, const std::string& step, const AttentionShape& shape,
                                const AttentionPrefillBuffers& buffers, uint32_t tokens, const FirstPosition& first);

}  // namespace doppler::gpu
