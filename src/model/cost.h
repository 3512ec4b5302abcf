// What a token costs: the bytes that must be read and the operations that must be done, from the plan alone.
// Speed is judged against these.
#pragma once

#include "model/plan.h"
#include "model/weights.h"

namespace doppler {

struct Cost {
  double weight_bytes = 0;  // weights read once for a decoded token (of experts, the chosen ones)
  double kv_bytes = 0;      // keys and values read (two bytes per dim) at this position
  double operations = 0;    // multiplications and additions
  double bytes() const { return weight_bytes + kv_bytes; }
};

// One decoded token with `position` tokens before it, logits included.
Cost decode_cost(const Plan& plan, const Weights& weights, int position);

// Bytes of the KV cache for a context, two per dim: a windowed layer keeps at most its window.
size_t kv_cache_bytes(const ModelConfig& config, int context);

}  // namespace doppler
