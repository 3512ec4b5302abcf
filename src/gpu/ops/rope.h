// The rotary embedding by itself, for taps: runs turn q and k on the way into attention and the cache (rope_store.h).
#pragma once

#include "gpu/webgpu/recording.h"

namespace doppler::gpu {

struct RopeShape {
  uint32_t tokens = 1, heads = 0, head_dim = 0;
};

Variant choose_rope(const Capabilities& capabilities);

// table: rope_tables(); x and out f32 [tokens, heads · head_dim], from DecodeState::position on.
void record_rope(Recording& recording, const std::string& step, const RopeShape& shape, const BoundBuffer& state,
                 const BoundBuffer& table, const BoundBuffer& x, const BoundBuffer& out);

}  // namespace doppler::gpu
