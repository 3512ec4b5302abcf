// The choice of the next token from its logits.
#pragma once

#include "gpu/webgpu/recording.h"

namespace doppler::gpu {

// The greedy choice: the highest logit, ties to the lowest id. NaN is above every number, so that it is seen.

// Where the chosen token goes.
struct TokenBuffers {
  BoundBuffer state;       // DecodeState: token, position, draw and produced are advanced
  BoundBuffer out_tokens;  // u32: the token is written at index `produced`; its complement where the highest logit is
                           // no finite number
  BoundBuffer seen;        // u32 [⌈vocab / 32⌉], a bit per token of the text: the token's bit is set
};

// Pairs of (sort key, id) that record_argmax_parts makes of `vocab` logits: u32 [2] each (ops/argmax.wgsl).
// The kernel that makes the logits may leave pairs of its own instead, any number of them.
uint32_t argmax_pairs(uint32_t vocab);

Variant choose_argmax(const Capabilities& capabilities);

// First half. `penalty` divides positive and multiplies negative logits of the tokens that are `seen`; 1 is none.
size_t record_argmax_parts(Recording& recording, const std::string& step, const BoundBuffer& logits,
                           const BoundBuffer& seen, const BoundBuffer& pairs, uint32_t vocab, float penalty);

// Second half. `advance`: how many tokens this step added to the context (1 in decode).
size_t record_argmax_pick(Recording& recording, const std::string& step, const BoundBuffer& pairs, uint32_t pair_count,
                          const TokenBuffers& tokens, uint32_t advance);

// The greedy choice of each of `columns` tokens from its pairs, [column][pair_count]: out_tokens u32 [columns], as
// TokenBuffers has them. The
// state says how many columns there are (KvPool::show_columns).
void record_batch_pick(Recording& recording, const std::string& step, const BoundBuffer& state,
                       const BoundBuffer& pairs, uint32_t pair_count, const BoundBuffer& out_tokens, uint32_t columns);

// A random choice by temperature, top-k, top-p and min-p with an optional repetition penalty, the same choice as the
// sampler on the CPU makes of the same logits, seed and draw (but for draws that fall on a rounding border).
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
