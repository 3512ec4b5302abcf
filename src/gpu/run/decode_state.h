// What changes with every token of a decode, in a small storage buffer (ops/lib/state.wgsl): one recording serves
// all tokens, because the kernel that picks a token advances this itself.
#pragma once

#include <cstdint>

namespace doppler::gpu {

struct DecodeState {
  uint32_t position = 0;  // tokens already in the context: the current token's position
  uint32_t token = 0;     // the current token
  uint32_t draw = 0;      // number of the random draw
  uint32_t produced = 0;  // tokens written to out_tokens
};
static_assert(sizeof(DecodeState) == 16);

}  // namespace doppler::gpu
