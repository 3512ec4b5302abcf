// The gated activation of the feed-forward: out = a(gate) · up.
#pragma once

#include "gpu/webgpu/recording.h"
#include "model/plan.h"

namespace doppler::gpu {

Variant choose_glu(const Capabilities& capabilities, const Glu& op);

// gate and up f32 [count], or interleaved in `gate` [2 · count] with `up` unused; out f32 [count].
void record_glu(Recording& recording, const std::string& step, const Glu& op, const BoundBuffer& gate,
                const BoundBuffer& up, const BoundBuffer& out, uint64_t count);

}  // namespace doppler::gpu
