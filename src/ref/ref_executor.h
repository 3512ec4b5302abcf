// Runs a Plan with the reference operations: slow, simple, the truth the others are held against.
#pragma once

#include "model/executor.h"

namespace doppler {

// Weights' bytes must outlive the executor.
std::unique_ptr<Executor> make_ref_executor(const ModelConfig& config, const Plan& plan, const Weights& weights,
                                            const ExecutorOptions& options);

}  // namespace doppler
