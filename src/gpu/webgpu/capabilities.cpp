#include "gpu/webgpu/capabilities.h"

#include <fmt/format.h>

#include "base/error.h"
#include "gpu/webgpu/recording.h"
#include "gpu/wgsl/probe_subgroups.h"

namespace doppler::gpu {

Capabilities minimal_capabilities() {
  Capabilities c;
  c.limits = {.max_buffer_bytes = 256u << 20,
              .max_binding_bytes = 128u << 20,
              .max_uniform_bytes = 64u << 10,
              .storage_buffers = 8,
              .uniform_alignment = 256,
              .storage_alignment = 256,
              .workgroup_bytes = 16u << 10,
              .invocations = 256,
              .workgroups_per_dimension = 65535};
  return c;
}

void check_capabilities(const Capabilities& capabilities, const std::string& where) {
  const Limits floor = minimal_capabilities().limits;
  const Limits& limits = capabilities.limits;
  auto at_least = [&](const char* name, uint64_t value, uint64_t least) {
    if (value < least) {
      fail({.code = ErrorCode::kDevice,
            .what = fmt::format("the device reports an impossible limit {}", name),
            .where = where,
            .expected = fmt::format("at least {}", least),
            .got = fmt::format("{}", value),
            .todo = "this WebGPU library may not be the build that webgpu_c.h describes; see tools/setup.sh"});
    }
  };
  at_least("maxBufferSize", limits.max_buffer_bytes, floor.max_buffer_bytes);
  at_least("maxStorageBufferBindingSize", limits.max_binding_bytes, floor.max_binding_bytes);
  at_least("maxUniformBufferBindingSize", limits.max_uniform_bytes, floor.max_uniform_bytes);
  at_least("maxStorageBuffersPerShaderStage", limits.storage_buffers, floor.storage_buffers);
  at_least("maxComputeWorkgroupStorageSize", limits.workgroup_bytes, floor.workgroup_bytes);
  at_least("maxComputeInvocationsPerWorkgroup", limits.invocations, floor.invocations);
  at_least("maxComputeWorkgroupsPerDimension", limits.workgroups_per_dimension, floor.workgroups_per_dimension);
  auto power_of_two = [](uint32_t n) { return n != 0 && (n & (n - 1)) == 0; };
  if (!power_of_two(limits.uniform_alignment) || !power_of_two(limits.storage_alignment) ||
      limits.uniform_alignment > 256 || limits.storage_alignment > 256) {
    fail({.code = ErrorCode::kDevice,
          .what = "the device reports an impossible offset alignment",
          .where = where,
          .expected = "a power of two up to 256",
          .got = fmt::format("{} and {}", limits.uniform_alignment, limits.storage_alignment)});
  }
}

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
