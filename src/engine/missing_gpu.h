// Why a machine's GPU is not used: what stands between WebGPU and a GPU that is plugged in, and what a person can do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace doppler {

struct PciGpu {
  uint32_t vendor = 0, device = 0;  // PCI ids
};

// The display controllers of NVIDIA, AMD and Intel under `folder`. Others (a server's console, a virtual machine's
// screen) do not compute.
std::vector<PciGpu> pci_gpus(const std::string& folder = "/sys/bus/pci/devices");

struct GpuSituation {
  std::vector<PciGpu> gpus;
  bool webgpu_library = true;  // Dawn could be loaded
  bool vulkan_loader = true;   // libvulkan.so.1 is here
  std::string denied = {};     // a device file of the GPU that this user may not open, or empty
};
GpuSituation gpu_situation();

// One sentence or two: "no GPU was found", or which one is left out, why, and what to do.
std::string explain_missing_gpu(const GpuSituation& situation);

}  // namespace doppler
