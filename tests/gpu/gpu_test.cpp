#include "gpu/gpu_test.h"

#include <memory>

#include "support/software_gpu.h"

namespace doppler::gpu {
Device* test_device(std::string* why) {
  static std::string reason;
  static const std::unique_ptr<Device> device = []() -> std::unique_ptr<Device> {
    testing::choose_gpu_driver();
    if (!webgpu_available(&reason)) return nullptr;
    return std::make_unique<Device>();
  }();
  *why = reason;
  return device.get();
}

}  // namespace doppler::gpu
