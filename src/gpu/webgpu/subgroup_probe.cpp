#include "gpu/webgpu/subgroup_probe.h"

#include "gpu/webgpu/recording.h"
#include "gpu/wgsl/probe_subgroups.h"

namespace doppler::gpu {

uint32_t probe_subgroup_size(Device& device) {
  constexpr uint32_t kLanes = 256;
  Buffer out = device.create_buffer("subgroups", 2 * kLanes * sizeof(uint32_t));
  Recording recording(device, "subgroup probe");
  recording.dispatch<wgsl::ProbeSubgroups>("subgroup probe", {}, {}, {.out = out}, {});
  device.submit(recording);
  const std::vector<uint32_t> seen = read<uint32_t>(device, out, 2 * kLanes);
  const uint32_t size = seen[0] >> 16;
  if (size < 4 || kLanes % size != 0) return 0;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    if (seen[lane] != (size << 16 | lane % size) || seen[kLanes + lane] != lane / size * size) return 0;
  }
  return size;
}

}  // namespace doppler::gpu
