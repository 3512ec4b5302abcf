#include "gpu/gpu_test.h"

#include <cstdlib>
#include <filesystem>
#include <memory>

namespace doppler::gpu {
namespace {

constexpr const char* kSwiftShader = "/usr/lib/chromium/vk_swiftshader_icd.json";

// Before anything asks for an adapter: where no GPU driver is to be seen, take the software one.
void choose_driver() {
  if (std::getenv("VK_ICD_FILENAMES") != nullptr || std::getenv("VK_DRIVER_FILES") != nullptr) return;
  const bool hardware = std::filesystem::exists("/dev/dri") || std::filesystem::exists("/dev/nvidia0");
  if (!hardware && std::filesystem::exists(kSwiftShader)) setenv("VK_ICD_FILENAMES", kSwiftShader, 1);
}

}  // namespace

Device* test_device(std::string* why) {
  static std::string reason;
  static const std::unique_ptr<Device> device = []() -> std::unique_ptr<Device> {
    choose_driver();
    if (!webgpu_available(&reason)) return nullptr;
    return std::make_unique<Device>();
  }();
  *why = reason;
  return device.get();
}

}  // namespace doppler::gpu
