#include "engine/missing_gpu.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "gpu/webgpu/device.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

constexpr uint32_t kNvidia = 0x10de, kAmd = 0x1002, kIntel = 0x8086;

std::string maker(uint32_t vendor) { return vendor == kNvidia ? "NVIDIA" : vendor == kAmd ? "AMD" : "Intel"; }

uint32_t read_hex(const fs::path& path) {
  uint32_t value = 0;
  std::ifstream(path) >> std::hex >> value;
  return value;
}

// The files through which Vulkan drivers reach a GPU.
std::string denied_device_file() {
  std::error_code ignored;
  for (const char* folder : {"/dev/dri", "/dev"}) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
      const std::string name = entry.path().filename().string();
      const bool gpu = name.rfind("renderD", 0) == 0 || name == "nvidiactl" || name == "nvidia0";
      if (gpu && ::access(entry.path().c_str(), R_OK | W_OK) != 0) return entry.path().string();
    }
  }
  return "";
}

}  // namespace

std::vector<PciGpu> pci_gpus(const std::string& folder) {
  std::vector<PciGpu> gpus;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const PciGpu gpu{read_hex(entry.path() / "vendor"), read_hex(entry.path() / "device")};
    const bool display = read_hex(entry.path() / "class") >> 16 == 0x03;  // PCI class: display controller
    if (display && (gpu.vendor == kNvidia || gpu.vendor == kAmd || gpu.vendor == kIntel)) gpus.push_back(gpu);
  }
  // A discrete GPU is the one a person misses most.
  std::sort(gpus.begin(), gpus.end(), [](const PciGpu& a, const PciGpu& b) {
    return std::pair(a.vendor == kIntel, a.device) < std::pair(b.vendor == kIntel, b.device);
  });
  return gpus;
}

GpuSituation gpu_situation() {
  GpuSituation situation;
  situation.gpus = pci_gpus();
  std::string why;
  situation.webgpu_library = gpu::webgpu_library_found(&why);
  void* loader = ::dlopen("libvulkan.so.1", RTLD_LAZY | RTLD_LOCAL);
  situation.vulkan_loader = loader != nullptr;
  if (loader != nullptr) ::dlclose(loader);
  situation.denied = denied_device_file();
  return situation;
}

std::string explain_missing_gpu(const GpuSituation& situation) {
  if (situation.gpus.empty()) return "no GPU was found";
  const PciGpu& gpu = situation.gpus.front();
  const std::string left_out =
      fmt::format("the {} GPU {:04x}:{:04x} is left out: ", maker(gpu.vendor), gpu.vendor, gpu.device);
  if (!situation.webgpu_library) return left_out + "the WebGPU library is missing. Fetch it with tools/setup.sh dawn";
  if (!situation.vulkan_loader) return left_out + "the Vulkan loader is missing. Install libvulkan1";
  if (!situation.denied.empty()) {
    return left_out + fmt::format("you may not open {}. Join the group that owns it, often `render`", situation.denied);
  }
  if (gpu.vendor == kNvidia) {
    return left_out + "it has no Vulkan driver. Install NVIDIA's driver, on Debian nvidia-driver and nvidia-vulkan-icd";
  }
  return left_out + "it has no Vulkan driver. Install mesa-vulkan-drivers";
}

}  // namespace doppler
