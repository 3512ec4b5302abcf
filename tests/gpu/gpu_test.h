// What the GPU tests share: one device for the whole program, on a hardware GPU where there is one, else on
// SwiftShader, software Vulkan. Without either, tests that need a device are skipped with the reason.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "gpu/webgpu/device.h"

namespace doppler::gpu {

// Null, with the reason, when this machine has no WebGPU.
Device* test_device(std::string* why);

// The error that `action` fails with; a test failure if it does not.
template <class Action>
Error error_of(Action action) {
  try {
    action();
  } catch (const Failure& failure) {
    return failure.error;
  }
  ADD_FAILURE() << "expected an error";
  return {};
}

}  // namespace doppler::gpu

#define DOPPLER_NEED_DEVICE(device)                                          \
  std::string device##_why;                                                  \
  ::doppler::gpu::Device* device##_found = test_device(&device##_why);       \
  if (device##_found == nullptr) GTEST_SKIP() << "no GPU: " << device##_why; \
  [[maybe_unused]] ::doppler::gpu::Device& device = *device##_found
