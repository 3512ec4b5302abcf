// Cases of the matrix product of many tokens, and of its 8-bit activations.
#pragma once

#include "gpu/cases/kernel_cases.h"

namespace doppler::gpu {

void append_quantize_activations_cases(std::vector<KernelCase>& cases);
void append_matmul_cases(std::vector<KernelCase>& cases);

// Every tile such a device can run, to be checked.
std::vector<KernelCase> matmul_tile_cases(const Capabilities& capabilities);

// The shapes of a model of 1B parameters in every tile such a device can run, to be measured and compared. All on one
// device: cases of the same shape share their weights.
std::vector<KernelCase> matmul_tuning_cases(const Capabilities& capabilities);

}  // namespace doppler::gpu
