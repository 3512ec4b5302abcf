// out = a + b: the residual stream's addition.
#pragma once

#include "gpu/webgpu/recording.h"

namespace doppler::gpu {

Variant choose_add(const Capabilities& capabilities);

// All three are f32 [count]; `out` is neither a nor b.
void record_add(Recording& recording, const std::string& step, const BoundBuffer& a, const BoundBuffer& b,
                const BoundBuffer& out, uint64_t count);

}  // namespace doppler::gpu
