#include "gpu/run/gpu_context.h"

#include <algorithm>

namespace doppler::gpu {

GpuContext::GpuContext(Device& device_, const ModelConfig& config_, const Plan& plan_, const Weights& weights_,
                       int context_, int block_, bool experts_later)
    : device(device_),
      config(config_),
      plan(plan_),
      context(context_),
      block(block_),
      groups(fuse_for_decode(plan)),
      weights(device, config, plan, groups, weights_, experts_later) {
  for (const Step& s : plan.steps) {
    const auto* op = std::get_if<Attention>(&s.op);
    if (!op) continue;
    // Behind a window there is room for a block, or for the tokens of a decode that may be taken back, one begun ahead
    // among them.
    LayerCache cache{shape_of(*op, context, std::max(block, kMostDecodeBatch + 1)), {}};
    check_attention_shape(cache.shape, s.name);
    cache.buffer = device.create_buffer(s.name + " cache", kv_bytes(cache.shape));
    caches.push_back(std::move(cache));
  }
  for (const RopeConfig& rope : config.ropes) {
    const std::vector<float> table = rope_tables(make_rope_table(rope, config.head_dim), context);
    ropes.push_back(device.create_buffer("rope", table.size() * sizeof(float)));
    write<float>(device, ropes.back(), table);
  }
  state = device.create_buffer("state", sizeof(DecodeState));
  tokens = device.create_buffer("tokens", static_cast<uint64_t>(block) * sizeof(uint32_t));
}

uint64_t GpuContext::cache_bytes() const {
  uint64_t bytes = 0;
  for (const LayerCache& cache : caches) bytes += cache.buffer.size();
  return bytes;
}

}  // namespace doppler::gpu
