// The steps of experts that stand alone: a block's, or a single token's that is looked into.
#pragma once

#include "gpu/ops/expert_matmul.h"
#include "gpu/run/gpu_context.h"

namespace doppler::gpu {

// What the products of experts of up to `tokens` tokens need besides their values: the grouping, and x as int8 where it
// is so (kept apart from that of other products, which is narrower).
struct ExpertMemory {
  ExpertMemory(GpuContext& context, int tokens);

  ExpertMap map;                   // none without experts
  QuantizedActivations quantized;  // none where x stays in f32
};

ExpertMatmulShape expert_shape(const GpuContext& context, const Step& step, int tokens);

// What the memory's map holds at a point of a recording.
struct MappedRoute {
  int value = -1;  // the route's, in the plan
  uint32_t tile_tokens = 0;
  bool operator==(const MappedRoute&) const = default;
};

// step is an ExpertMatMul; x, route and out as in the plan, for `tokens` tokens. Products of one
// route share its map where `mapped` is kept from one to the next.
void record_expert_step(Recording& recording, const GpuContext& context, const ExpertMemory& memory, const Step& step,
                        int tokens, const Buffer& x, const Buffer& route, const Buffer& out,
                        MappedRoute* mapped = nullptr);

}  // namespace doppler::gpu
