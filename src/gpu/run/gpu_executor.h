// Runs a Plan on a GPU through WebGPU.
#pragma once

#include "model/executor.h"

namespace doppler {

// Opens the device that the options name and uploads the weights, which are not needed afterwards unless
// the options bound the memory.
std::unique_ptr<Executor> make_gpu_executor(const ModelConfig& config, const Plan& plan, const Weights& weights,
                                            const ExecutorOptions& options);

}  // namespace doppler
