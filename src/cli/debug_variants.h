#pragma once

#include "debug/variants.h"
#include "engine/backend.h"

namespace doppler {

// `doppler debug --compare variants`: prints a line for each variant of the backend's kernels that options.kernels
// names, of all kinds where it names none. False if one of them differs from plain code.
bool debug_variants(const LoadedModel& model, const BackendChoice& backend, const ExecutorOptions& options,
                    std::span<const int32_t> prompt, double bound, bool verify, bool json);

}  // namespace doppler
