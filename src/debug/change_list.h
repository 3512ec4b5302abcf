// Changes of single steps, put together: what several steps have in common is one change of all of them, too.
#pragma once

#include "debug/recompute.h"

namespace doppler {

class ChangeList {
 public:
  explicit ChangeList(const DebuggedModel& model) : model_(model) {}

  const DebuggedModel& model() const { return model_; }
  void begin(size_t step) { step_ = step; }  // what is added next changes this step
  const Step& step() const { return model_.plan.steps[step_]; }
  int width() const;  // of its output
  void add(std::string subject, std::string planned, std::string instead, Edit edit);

  // In the order in which they came: first of all steps that have it, then of queries and keys, then of each alone.
  std::vector<Change> take();

 private:
  const DebuggedModel& model_;
  size_t step_ = 0;
  std::vector<Change> changes_;
};

// As a person writes it: 1000000, 0.9, 1e-06.
std::string plain_number(double value);

void rope_choices(ChangeList& list, const Rope& op, int first_bad);

}  // namespace doppler
