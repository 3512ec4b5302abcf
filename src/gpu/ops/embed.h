// Rows of the embedding matrix for token ids, decoded from the packed bytes.
#pragma once

#include "gpu/ops/weight.h"
#include "gpu/webgpu/recording.h"

namespace doppler::gpu {

Variant choose_embed(const Capabilities& capabilities, DType dtype);

// tokens u32, `count` of them from index `first_token` on, each below matrix.rows (others leave their row of `out` as
// it is); out f32 [count, matrix.cols].
void record_embed(Recording& recording, const std::string& step, const Weight& matrix, const BoundBuffer& tokens,
                  const BoundBuffer& out, uint64_t count, float scale, uint32_t first_token = 0);

}  // namespace doppler::gpu
