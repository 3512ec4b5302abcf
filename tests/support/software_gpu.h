// A GPU for tests that load whole models: this machine's own, or SwiftShader, software Vulkan, where it has none.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gpu/webgpu/device.h"

namespace doppler::testing {

// Before anything asks for an adapter: where no GPU driver is to be seen, take the software one.
inline void choose_gpu_driver() {
  constexpr const char* kSwiftShader = "/usr/lib/chromium/vk_swiftshader_icd.json";
  if (std::getenv("VK_ICD_FILENAMES") != nullptr || std::getenv("VK_DRIVER_FILES") != nullptr) return;
  const bool hardware = std::filesystem::exists("/dev/dri") || std::filesystem::exists("/dev/nvidia0");
  if (!hardware && std::filesystem::exists(kSwiftShader)) setenv("VK_ICD_FILENAMES", kSwiftShader, 1);
}

// Why WebGPU is not to be had here; empty where it is.
inline std::string missing_gpu() {
  choose_gpu_driver();
  std::string why;
  return gpu::webgpu_available(&why) ? "" : "no GPU: " + why;
}

}  // namespace doppler::testing
