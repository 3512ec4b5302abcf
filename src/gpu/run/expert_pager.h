// Experts of a model that is larger than the memory it may take. Every layer has pages for some of its experts, the
// same for all their matrices; those a block of tokens chose are fetched from the mapped weights when they are not
// there, in place of those that were not used for longest. So the router's choice is read back in every layer.
#pragma once

#include <memory>

#include "gpu/run/step_program.h"

namespace doppler::gpu {

class ExpertPager {
 public:
  virtual ~ExpertPager() = default;
  // Runs all parts of a program. More experts than pages are taken in rounds, each of which computes the rows of its
  // own: every result is what it is without paging.
  virtual void run(StepProgram& program) = 0;
  // Matrices that a part of a block wanted, and that were there or were not.
  virtual uint64_t hits() const = 0;
  virtual uint64_t misses() const = 0;
};

// What a model may take on the device.
struct GpuBudget {
  uint64_t bytes = 0;
  int logit_rows = 0;   // the most that a program will ask for; programs are made one at a time
  uint64_t tapped = 0;  // what taps take
};

// Before anything is uploaded: fails where everything but the experts, and those of a single token, would not fit. A
// budget of no bytes is none. Returns the device.
Device& check_budget(Device& device, const ModelConfig& config, const Plan& plan, const Weights& weights,
                     const CacheSize& size, const GpuBudget& budget, const Adapters* adapters);

// Of a block of tokens: the copies of tapped values.
uint64_t tapped_bytes(const GpuContext& context, const TapSteps& tapped, int tokens, int logit_rows);

// For a context whose experts are to come later, and when everything else is on the device. Where all experts fit into
// the budget beside that, they are uploaded and there is no pager; else the context is paged from now on. Experts that
// were placed before are given up; no program may be left that uses them. Fails like check_budget(). The weights must
// outlive the pager.
std::unique_ptr<ExpertPager> place_experts(GpuContext& context, const Weights& weights, const GpuBudget& budget);

}  // namespace doppler::gpu
