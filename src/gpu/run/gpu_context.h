// What every program of one loaded model shares: the device, the weights, the caches and the small state.
#pragma once

#include "gpu/ops/rope_tables.h"
#include "gpu/run/decode_state.h"
#include "gpu/run/gpu_weights.h"

namespace doppler::gpu {

// Tokens that one submit may decode at most.
inline constexpr int kMostDecodeBatch = 64;

struct LayerCache {
  AttentionShape shape;
  Buffer buffer;  // kv_bytes(shape)
};

struct GpuContext {
  // The plan and the config are copied; the weights are read and not needed afterwards, but for experts
  // that are handed over later.
  GpuContext(Device& device_, const ModelConfig& config_, const Plan& plan_, const Weights& weights_, int context_,
             int block_, bool experts_later);

  Device& device;
  const ModelConfig config;
  const Plan plan;
  const int context, block;
  const std::vector<FusedGroup> groups;
  GpuWeights weights;
  bool paged = false;              // are experts? See expert_pager.h
  std::vector<LayerCache> caches;  // by layer
  std::vector<Buffer> ropes;       // by rope
  Buffer state;                    // DecodeState
  Buffer tokens;                   // u32 [block]

  const Step& step(int s) const { return plan.steps[static_cast<size_t>(s)]; }
  int width(int value) const { return plan.values[static_cast<size_t>(value)].width; }
  uint64_t cache_bytes() const;
};

}  // namespace doppler::gpu
