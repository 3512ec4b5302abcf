// A random choice by temperature, top-k, top-p and min-p with an optional repetition penalty, the same choice as the
// sampler on the CPU makes of the same logits, seed and draw (but for draws that fall on a rounding border).
#pragma once

#include "gpu/ops/argmax.h"

namespace doppler::gpu {

struct SampleOptions {
  float temperature = 1;  // above 0; 0 is argmax
  uint32_t top_k = 0;     // 0: all
  float top_p = 1;        // 1: all
  float min_p = 0;        // 0: all
  float penalty = 1;      // 1: none
  uint64_t seed = 0;
};

// `bins` holds sample_bin_bytes() zeros at first and again after every draw; `list` sample_list_bytes(vocab).
struct SampleBuffers {
  BoundBuffer logits;  // f32 [vocab]
  BoundBuffer pairs;   // of record_argmax_parts, or of the kernel that made the logits if there is no penalty
  BoundBuffer bins, list;
  TokenBuffers tokens;
};
uint64_t sample_bin_bytes();
uint64_t sample_list_bytes(uint32_t vocab);

Variant choose_sample(const Capabilities& capabilities);

// Three dispatches, which follow record_argmax_parts with the same penalty. Returns the number of the first.
size_t record_sample(Recording& recording, const std::string& step, const SampleOptions& options,
                     const SampleBuffers& buffers, uint32_t pair_count, uint32_t vocab, uint32_t advance);

}  // namespace doppler::gpu
