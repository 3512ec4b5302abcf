// What the kernels around attention share: the shape of a layer, its cache, and its small weights.
#pragma once

#include <span>
#include <vector>

#include "gpu/webgpu/recording.h"

namespace doppler::gpu {

struct AttentionShape {
  uint32_t heads = 0, kv_heads = 0;
  uint32_t head_dim = 0;  // a multiple of 8, up to 256
  uint32_t capacity = 0;  // ring slots of the layer's cache: kv_capacity()
  uint32_t window = 0;    // keys position-window+1 … position are seen; 0: all
  float scale = 1;        // of q·k
  float softcap = 0;      // cap · tanh(score / cap); 0: none
  bool sinks = false;     // one logit a head joins the softmax

  uint32_t share() const { return heads / kv_heads; }  // query heads of a kv head
};

// Fails (kUnsupported) for shapes that the kernels do not do.
void check_attention_shape(const AttentionShape& shape, const std::string& where);

// Per-head RMS norm of q and k before the rotary embedding.
struct HeadNorm {
  bool on = false;
  float eps = 0, offset = 0;
};

// The position of a block's first token: `first`, counted from zero or from DecodeState::position.
struct FirstPosition {
  uint32_t first = 0;
  bool follow_state = true;
};

// Slots that a layer's ring needs: a block of up to `block` tokens is stored before it is attended to, so behind a
// window there must be room for both. Rounded up to a multiple of 32; at least 64, a tile of keys.
uint32_t kv_capacity(uint32_t context, uint32_t window, uint32_t block);

// Bytes of one layer's cache: keys and values, two bytes a dim, and the steps of the values, in one buffer
// (ops/lib/kv_cache.wgsl).
uint64_t kv_bytes(const AttentionShape& shape);

// A layer's small weights in one buffer: q norm [head_dim], k norm [head_dim], sinks [heads]. What a layer does not
// have is empty and becomes zeros.
std::vector<float> head_weights(const AttentionShape& shape, std::span<const float> q_norm,
                                std::span<const float> k_norm, std::span<const float> sinks);

}  // namespace doppler::gpu
