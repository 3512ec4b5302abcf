#include "gpu/webgpu/capabilities.h"

#include <fmt/format.h>

#include "base/error.h"

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
      fail({ErrorCode::kDevice, fmt::format("the device reports an impossible limit {}", name), where,
            fmt::format("at least {}", least), fmt::format("{}", value),
            "this WebGPU library may not be the build that webgpu_c.h describes; see tools/fetch_dawn.sh"});
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
    fail({ErrorCode::kDevice, "the device reports an impossible offset alignment", where, "a power of two up to 256",
          fmt::format("{} and {}", limits.uniform_alignment, limits.storage_alignment), ""});
  }
}

}  // namespace doppler::gpu
