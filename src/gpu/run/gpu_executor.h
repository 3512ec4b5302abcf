// Runs a Plan on a GPU through WebGPU.
#pragma once

#include "model/executor.h"

namespace doppler {

namespace gpu {
struct Capabilities;
}

// Opens the device that the options name and uploads the weights, which are not needed afterwards unless
// the options bound the memory.
std::unique_ptr<Executor> make_gpu_executor(const ModelConfig& config, const Plan& plan, const Weights& weights,
                                            const ExecutorOptions& options);

// What is otherwise the device's own, for tests.
struct GpuTuning {
  std::function<void(gpu::Capabilities&)> believed = {};  // see DeviceOptions
};
std::unique_ptr<Executor> make_gpu_executor(const ModelConfig& config, const Plan& plan, const Weights& weights,
                                            const ExecutorOptions& options, const GpuTuning& tuning);

}  // namespace doppler
