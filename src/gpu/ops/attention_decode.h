// Attention of one token, split over its keys: the workgroups of attention_decode or attention_fused leave partial
// results, which attention_merge puts together, or the first stage of the kernel that follows
// (ops/lib/merge_partials.wgsl). How many splits have work follows from DecodeState::position, so one recording
// serves every length.
#pragma once

#include "gpu/ops/rope_store.h"

namespace doppler::gpu {

// Splits of the grid. A split takes a whole number of tiles of 64 keys, so a short context uses fewer; a long one gives
// each split more tiles. `longest` is the most keys a token of this layer will ever see (window or context).
uint32_t choose_splits(const Capabilities& capabilities, const AttentionShape& shape, uint32_t longest);

// Bytes of the partial results: f32 [splits][heads · head_dim], then [splits][heads] of (max, sum, 0, 0).
uint64_t partial_bytes(const AttentionShape& shape, uint32_t splits);

// For attention_decode and attention_fused alike, but for the constant made_here. Query heads that share a kv head go
// into one workgroup, so that keys and values are read once; but while there are few workgroups, each takes fewer
// heads.
Variant choose_attention_decode(const Capabilities& capabilities, const AttentionShape& shape, uint32_t splits,
                                bool fused);
Variant choose_attention_merge(const Capabilities& capabilities);

struct AttentionDecodeBuffers {
  BoundBuffer state;     // DecodeState
  BoundBuffer weights;   // head_weights()
  BoundBuffer cache;     // kv_bytes()
  BoundBuffer partials;  // partial_bytes()
};

// q: f32 [heads · head_dim], rotated; the token's key and value are in the cache.
size_t record_attention_decode(Recording& recording, const std::string& step, const AttentionShape& shape,
                               const BoundBuffer& q, const AttentionDecodeBuffers& buffers, uint32_t splits);

// From raw projections: norm, rotary embedding, store and attention in one dispatch.
size_t record_attention_fused(Recording& recording, const std::string& step, const AttentionShape& shape,
                              const HeadNorm& norm, const Projections& projections, const BoundBuffer& rope,
                              const AttentionDecodeBuffers& buffers, uint32_t splits);

// out: f32 [heads · head_dim].
size_t record_attention_merge(Recording& recording, const std::string& step, const AttentionShape& shape,
                              const BoundBuffer& state, const BoundBuffer& partials, const BoundBuffer& out,
                              uint32_t splits);

}  // namespace doppler::gpu
