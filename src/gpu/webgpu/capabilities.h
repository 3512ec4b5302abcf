// What a device can do, as plain data: the functions that choose a kernel's variant look at nothing else, so they can
// be tested without a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/kernel_wishes.h"

namespace doppler::gpu {

class Device;

struct Limits {
  uint64_t max_buffer_bytes = 0;
  uint64_t max_binding_bytes = 0;         // of one storage binding
  uint64_t max_uniform_bytes = 0;         // of one uniform binding
  uint32_t storage_buffers = 0;           // per shader stage
  uint32_t uniform_alignment = 256;       // of a binding's offset
  uint32_t storage_alignment = 256;       // of a binding's offset
  uint32_t workgroup_bytes = 0;           // of workgroup memory
  uint32_t invocations = 0;               // per workgroup
  uint32_t workgroups_per_dimension = 0;  // of a dispatch
};

struct Capabilities {
  Limits limits;
  bool subgroups = false;
  uint32_t subgroup_min = 0, subgroup_max = 0;  // lanes, as the adapter says; 0 when unknown
  uint32_t subgroup_size = 0;                   // lanes, as seen on an open device; 0 without subgroups
  bool f16 = false;                             // shader-f16
  bool subgroup_matrix = false;                 // chromium-experimental-subgroup-matrix
  bool f16_matrices = false;   // of it: f16 · f16 + f32 in tiles of 16 × 16 × 16, as matmul_matrix.wgsl spells them
  bool int8_dot = false;       // dot4I8Packed and friends
  bool int8_emulated = false;  // …made of shifts and products (Metal), so that f16 is faster where there is much to do
  bool timestamps = false;
  bool software = false;      // the "GPU" is the CPU
  KernelWishes kernels = {};  // of whoever runs the model: what choice functions take where it can be done
};

struct AdapterInfo {
  std::string name, vendor, architecture, description;
  std::string backend;  // "Vulkan"
  std::string type;     // "discrete GPU"
  uint32_t vendor_id = 0, device_id = 0;
  Capabilities capabilities;
};

// The capabilities WebGPU promises everywhere: nothing optional, smallest limits. For tests of choice functions.
Capabilities minimal_capabilities();

// Fails when the numbers cannot be those of a device, which means that webgpu_c.h and the library disagree.
void check_capabilities(const Capabilities& capabilities, const std::string& where);

// Lanes in a subgroup of a 256-lane workgroup, or 0 if the subgroups are not alike, not consecutive, or smaller than 4.
uint32_t probe_subgroup_size(Device& device);

}  // namespace doppler::gpu
