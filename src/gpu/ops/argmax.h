// The greedy choice: the highest logit, ties to the lowest id; NaN never wins.
#pragma once

#include "gpu/webgpu/recording.h"

namespace doppler::gpu {

// Where the chosen token goes.
struct TokenBuffers {
  BoundBuffer state;       // DecodeState: token, position, draw and produced are advanced
  BoundBuffer out_tokens;  // u32: the token is written at index `produced`
  BoundBuffer seen;        // u32 [⌈vocab / 32⌉], a bit a token of the text: the token's bit is set
};

// Pairs of (sort key, id) that record_argmax_parts makes of `vocab` logits: u32 [2] each (ops/lib/sort_key.wgsl).
// The kernel that makes the logits may leave pairs of its own instead, any number of them.
uint32_t argmax_pairs(uint32_t vocab);

Variant choose_argmax(const Capabilities& capabilities);

// First half. `penalty` divides positive and multiplies negative logits of the tokens that are `seen`; 1 is none.
size_t record_argmax_parts(Recording& recording, const std::string& step, const BoundBuffer& logits,
                           const BoundBuffer& seen, const BoundBuffer& pairs, uint32_t vocab, float penalty);

// Second half. `advance`: how many tokens this step added to the context (1 in decode).
size_t record_argmax_pick(Recording& recording, const std::string& step, const BoundBuffer& pairs, uint32_t pair_count,
                          const TokenBuffers& tokens, uint32_t vocab, uint32_t advance);

}  // namespace doppler::gpu
