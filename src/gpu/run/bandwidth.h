// What a GPU's memory can do, by which kernels are judged.
#pragma once

namespace doppler::gpu {

// Bytes a second that a large copy reads and writes, the best of a few. `adapter` as in DeviceOptions.
double measure_copy_bandwidth(int adapter);

}  // namespace doppler::gpu
