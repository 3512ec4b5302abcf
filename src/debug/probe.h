// Exact values of a stage at chosen tokens and columns: 'stage=logits,tokens=-1,dims=476,3868'.
#pragma once

#include "debug/stages.h"

namespace doppler {

struct Probe {
  std::string stage;
  std::vector<int> tokens{-1};  // positions; negative count from the end
  std::vector<int> dims;        // columns; empty: all
};

// Fails with a sentence where the text is no probe or names a step the plan does not have.
Probe parse_probe(const std::string& text, const Plan& plan);

struct ProbedValue {
  std::string stage;
  int position = 0, column = 0;
  float value = 0;
};
// Fails for positions and columns that are not there, and for stages that were not tapped.
std::vector<ProbedValue> probe(const Probe& probe, const Stages& stages);

}  // namespace doppler
