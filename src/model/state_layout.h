// Where what layers carry from one token to the next lies, besides keys and values: f32, the plan's states one behind
// the other. A sequence has one copy of all of them for each place it may go on from (KvCache::state).
#pragma once

#include <vector>

#include "model/plan.h"

namespace doppler {

struct StateLayout {
  std::vector<size_t> offsets, floats;  // by number
  size_t total = 0;                     // floats of all

  size_t bytes() const { return total * sizeof(float); }
};
StateLayout make_state_layout(const Plan& plan);

// Copies that a backend keeps for so many sequences: what each may hold at once (where it is, where it goes, and one
// shared with whoever it was forked from), and some from which a prefix can be gone on from.
size_t state_copies(const StateLayout& layout, int sequences);

}  // namespace doppler
