// The cause of a wrong stage. First the experiments: is the step what its plan says, and if not, what is it? Where none
// explains it, a table of signatures of what no plan could mean (memory nobody wrote, a corrupted block): each is a
// test on the numbers, and the first that fits tells a person where to look.
#pragma once

#include "debug/compare.h"

namespace doppler {

struct Evidence {
  const Stages& run;
  const Stages& reference;  // in our words
  const DebuggedModel& model;
  const Bounds& bounds;
  const StageComparison& bad;
  std::vector<int> left_out = {};  // positions that say nothing
};

struct Diagnosis {
  std::string cause;
  std::vector<Experiment> nearest;  // what comes closest, where nothing explains it
};

Diagnosis diagnose(const Evidence& evidence);

}  // namespace doppler
