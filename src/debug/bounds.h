// How far a step may be from its reference.
#pragma once

#include "model/weights.h"

namespace doppler {

// A step inherits the error of its inputs, and may enlarge it threefold; what it adds itself must be small. It is out
// of bounds when ‖run − reference‖ / ‖reference‖ is over `relative` whatever its inputs, or over added + 3 · theirs; or
// when one element is off by over element + 3 · the inputs' worst, in units of its size plus the stage's rms: a single
// wrong column hides in a norm.
struct Bounds {
  double relative = 0, added = 0, element = 0;
};

// What rounding alone explains. `same_weights`: both sides read the same bytes (two backends); otherwise the reference
// had weights before quantisation.
Bounds bounds_for(const Weights& weights, bool same_weights);

}  // namespace doppler
