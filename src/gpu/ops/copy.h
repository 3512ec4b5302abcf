// A copy by a kernel, inside a compute pass (Recording::copy ends the pass).
#pragma once

#include "gpu/webgpu/recording.h"

namespace doppler::gpu {

Variant choose_copy(const Capabilities& capabilities);

// `bytes` is a multiple of 16.
void record_copy(Recording& recording, const std::string& step, const BoundBuffer& from, const BoundBuffer& to,
                 uint64_t bytes);

}  // namespace doppler::gpu
