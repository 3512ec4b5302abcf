// How the next token is chosen from the logits: plain data, so that a device can do it as well as the host.
#pragma once

#include <cstdint>

namespace doppler {

struct Sampling {
  float temperature = 0;     // 0: greedy, the highest logit (ties: the lowest id)
  int top_k = 0;             // keep the k likeliest; 0: all
  float top_p = 1;           // keep the fewest likeliest whose probabilities reach p; 1: all
  float min_p = 0;           // keep those at least this fraction as likely as the likeliest; 0: all
  float repeat_penalty = 1;  // divides positive and multiplies negative logits of tokens already in the text; 1: none
  uint64_t seed = 0;
};

}  // namespace doppler
