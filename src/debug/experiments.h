// Diagnosis by experiment: a wrong step is computed again under every alternative that its plan could have meant, and
// the alternative that fits is the cause.
#pragma once

#include "debug/recompute.h"

namespace doppler {

struct Experiment {
  std::string what;  // in the words of a report
  double before = 0, after = 0;
};

struct Findings {
  bool fits = false;
  std::string cause;                // if one fits
  std::vector<Experiment> nearest;  // best first, three at most
};

// What is to be explained: values of a step, and what they are to be computed from.
struct Question {
  const DebuggedModel& model;
  const Stages& source;
  std::span<const int32_t> tokens;
  const Step& step;
  const Stage& wanted;
  double rounding = 0;  // a relative error that needs no explanation
  bool of_the_backend =
      false;  // wanted is what the run computed from the run's own inputs: it is not what its plan says.
              // Otherwise it is the reference's, from the reference's inputs: the plan is not what it says
  std::vector<double> row_errors = {};  // of the rows of `wanted`, where they are known
  std::vector<int> left_out = {};       // positions that say nothing
};

Findings try_alternatives(const Question& question);

// The relative error of plain code as planned, from the question's source; less than zero if it cannot be computed.
double error_as_planned(const Question& question, double* element_error = nullptr);

// The steps between what the source has and the question's step, which is the last.
std::vector<const Step*> steps_between(const Question& question);

// All of the step's output as planned; empty if it cannot be computed.
Stage as_planned(const Question& question);

}  // namespace doppler
