// RMSNorm over groups of columns: a whole row, or a head for q and k.
#pragma once

#include "gpu/webgpu/recording.h"

namespace doppler::gpu {

struct NormShape {
  uint64_t groups = 0;  // rows · (width / group)
  uint32_t width = 0;   // of a group
};

Variant choose_norm(const Capabilities& capabilities, const NormShape& shape);

// out = x / sqrt(mean(x²) + eps) · (offset + weight); x and out f32 [groups, width], weight f32 [width].
void record_norm(Recording& recording, const std::string& step, const BoundBuffer& x, const BoundBuffer& weight,
                 const BoundBuffer& out, const NormShape& shape, float eps, float offset);

}  // namespace doppler::gpu
