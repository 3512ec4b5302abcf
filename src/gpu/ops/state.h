// Operations that go on from a sequence's state: a short convolution and the gated delta rule (model/plan.h), a block
// of tokens in one dispatch.
#pragma once

#include "gpu/webgpu/recording.h"
#include "model/plan.h"

namespace doppler::gpu {

// Which copy of the states a block goes on from, and which it leaves; in a storage buffer.
struct StatePlaces {
  uint32_t origin = 0, left = 0;  // origin: KvCache::kNoState where there is none
};

Variant choose_short_conv(const Capabilities& capabilities, const ShortConv& op);

// x f32 [tokens, channels], or three times as wide where it is gated; weight [channels, kernel]; states
// [copies, kernel - 1, channels]; out f32 [tokens, channels].
void record_short_conv(Recording& recording, const std::string& step, const ShortConv& op, const BoundBuffer& places,
                       const BoundBuffer& x, const BoundBuffer& weight, const BoundBuffer& states,
                       const BoundBuffer& out, uint32_t tokens);

struct DeltaNetBuffers {
  BoundBuffer places;
  BoundBuffer qkv, b, a;  // f32 rows, as the plan has them
  BoundBuffer decay, dt;  // [value_heads]
  BoundBuffer states;     // [copies, value_heads, key_dim, value_dim]
  BoundBuffer out;        // f32 [tokens, value_heads · value_dim]
};

Variant choose_delta_net(const Capabilities& capabilities, const DeltaNet& op);

void record_delta_net(Recording& recording, const std::string& step, const DeltaNet& op, const DeltaNetBuffers& buffers,
                      uint32_t tokens);

}  // namespace doppler::gpu
