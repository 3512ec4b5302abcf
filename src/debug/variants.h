// Every variant of a backend's kernels against plain code, one after another: which of them differs?
#pragma once

#include "debug/compare.h"

namespace doppler {

struct VariantVerdict {
  std::string kind, variant;  // empty: what the backend chooses by itself
  double worst = 0;           // relative error of a stage
  size_t stages = 0;          // that were compared
  std::string first_bad;      // empty: it computes what plain code does
  std::string kernel, cause;  // of first_bad
};

using MakeExecutor = std::function<std::unique_ptr<Executor>(const KernelWishes&)>;

// Runs the reference's prompt once with every variant that `only` names, of the kinds it names; all of all kinds where
// it is empty. The last tokens run one by one, so that the kernels of decode are tried, too. `seen` hears each verdict
// as it comes.
std::vector<VariantVerdict> try_variants(const MakeExecutor& make, const KernelWishes& only, const Stages& reference,
                                         const DebuggedModel& model, const Bounds& bounds,
                                         const std::function<void(const VariantVerdict&)>& seen = {});

// "attention=plain differs: …", one line for each that does; that none does where that is so.
std::string variants_summary(std::span<const VariantVerdict> verdicts);

}  // namespace doppler
