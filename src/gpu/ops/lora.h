// LoRA adapters beside a matrix: what two thin products add to its product (model/adapters.h).
#pragma once

#include "gpu/webgpu/recording.h"
#include "model/adapters.h"

namespace doppler::gpu {

// One adapter's pair for one slot.
struct LoraWeights {
  uint32_t rank = 0, in = 0, out = 0;
  float scale = 1;
  Buffer a, b;  // f32 [rank, in], [rank, out]
};
LoraWeights upload_lora(Device& device, const std::string& slot, const LoraPair& pair);

Variant choose_lora_down(const Capabilities& capabilities);

// y f32 [rows, out] += scale · weights.scale · B (A x), x f32 [rows, in]; `thin` has room for f32 [rows, rank].
void record_lora(Recording& recording, const std::string& step, const LoraWeights& weights, float scale, uint64_t rows,
                 const BoundBuffer& x, const BoundBuffer& thin, const BoundBuffer& y);

}  // namespace doppler::gpu
