#pragma once

#include "gpu/run/gpu_context.h"

namespace doppler::gpu {

// What ExecutorOptions::kernels may name for this model on its device.
std::vector<KernelKind> kernel_kinds(const GpuContext& context);

}  // namespace doppler::gpu
