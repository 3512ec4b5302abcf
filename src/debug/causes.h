// What a wrong stage looks like when a known thing has gone wrong. A table of signatures, each a test on the numbers:
// the first that fits is the likely cause. Nothing here is certain; it tells a person where to look first.
#pragma once

#include "debug/compare.h"

namespace doppler {

struct Evidence {
  const Stages& run;
  const Stages& reference;  // in our words
  const Plan& plan;         // the run's
  const Weights& weights;   // the run's
  const Bounds& bounds;
  const StageComparison& bad;
};

std::string likely_cause(const Evidence& evidence);

// The stage under suspicion, as the signatures see it.
struct Suspect {
  const Evidence& evidence;
  const Step& step;
  AlignedRows rows;
  std::vector<double> row_errors, column_errors;  // relative to the stage's rms

  float got(int row, int column) const { return rows.got[at(row, column)]; }
  float expected(int row, int column) const { return rows.expected[at(row, column)]; }
  double bound() const { return evidence.bounds.added; }
  // The reference's value of an input of this step, or null.
  const Stage* reference_input(size_t input) const;

 private:
  size_t at(int row, int column) const {
    return static_cast<size_t>(row) * static_cast<size_t>(rows.width) + static_cast<size_t>(column);
  }
};

// Signatures that recompute the attention from the reference's own queries, keys and values, with one thing changed.
std::string attention_cause(const Suspect& suspect);
// Signatures of a rotation by the wrong angle.
std::string rope_cause(const Suspect& suspect);

}  // namespace doppler
