// What a step could have meant instead: every number and choice of it that engines and checkpoints have disagreed on.
#pragma once

#include "debug/recompute.h"

namespace doppler {

// Other numbers and choices, likelier ones first. `first_bad`: the position from which on the output is wrong.
std::vector<Change> other_choices(const Recomputation& recomputation, int first_bad);

// Other weights of the same shape, and other ways to read the same.
std::vector<Change> other_weights(const Recomputation& recomputation);

// A number that may have any value.
struct Dial {
  std::vector<size_t> steps;
  std::string subject, planned;
  double from = 0, to = 1;
  bool ratio = false;  // is tried in equal ratios, not in equal differences
  std::function<void(Formula& formula, double value)> turn;
};
std::vector<Dial> dials(const Recomputation& recomputation);
Change at(const Dial& dial, double value);

}  // namespace doppler
