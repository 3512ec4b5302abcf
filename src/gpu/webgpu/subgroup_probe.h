// Kernels that use subgroups take it that a subgroup holds consecutive lanes of a workgroup. WGSL does not promise
// that, so every device is asked once.
#pragma once

#include "gpu/webgpu/device.h"

namespace doppler::gpu {

// Lanes in a subgroup of a 256-lane workgroup, or 0 if the subgroups are not alike, not consecutive, or smaller than 4.
uint32_t probe_subgroup_size(Device& device);

}  // namespace doppler::gpu
