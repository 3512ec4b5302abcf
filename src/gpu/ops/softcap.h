// out = cap · tanh(x / cap): the output logits' soft-cap.
#pragma once

#include "gpu/webgpu/recording.h"

namespace doppler::gpu {

Variant choose_softcap(const Capabilities& capabilities);

// f32 [count] both; `out` is not x.
void record_softcap(Recording& recording, const std::string& step, const BoundBuffer& x, const BoundBuffer& out,
                    uint64_t count, float cap);

}  // namespace doppler::gpu
