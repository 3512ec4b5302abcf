// One run against another, stage by stage in the order of computation, up to the first that is out of bounds.
#pragma once

#include "debug/bounds.h"
#include "debug/experiments.h"

namespace doppler {

struct WorstElement {
  int position = 0, column = 0;
  float got = 0, expected = 0;
};

struct StageComparison {
  std::string name;
  double rel_error = 0, cosine = 1;
  double element_error = 0;  // |got − expected| / (|expected| + rms) of the worst element
  WorstElement worst;
  bool ok = true;
  std::string note;  // why it could not be compared, or what is special
};

struct Comparison {
  std::vector<StageComparison> stages;  // up to and including the first that is out of bounds
  std::string first_bad;                // empty: all are within bounds
  std::string cause;                    // likely, of first_bad
  std::vector<Experiment> nearest;      // alternatives that come closest, where none explains it
  // Steps between the last good stage and first_bad that the reference does not hold: the fault may be in any of them.
  std::vector<std::string> suspects;
  std::vector<std::string> not_compared;  // stages of the reference that this engine does not know
  Bounds bounds;
};

// `model` is the run's. Stages the run did not tap are passed over; a stage of the reference for which the run has no
// step at all is a fault. `past_first`: do not stop at the first.
Comparison compare_stages(const Stages& run, const Stages& reference, const DebuggedModel& model, const Bounds& bounds,
                          bool past_first = false);

// The rows of both for the positions that both have.
struct AlignedRows {
  std::span<const float> got, expected;
  int rows = 0, width = 0, position = 0;
};
AlignedRows align(const Stage& got, const Stage& expected);

// The reference's stages under this engine's names, in the order of computation. Where a layer has one norm less, the
// norm before its feed-forward goes by the name post_attn_norm elsewhere. Names nobody knows go to `unknown`.
Stages with_our_names(const Stages& reference, const Plan& plan, std::vector<std::string>& unknown);

}  // namespace doppler
