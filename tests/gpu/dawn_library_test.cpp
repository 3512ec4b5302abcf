// The WebGPU library that a build fetched is the one that the program takes.
#include "gpu/webgpu/dawn_library.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace doppler::gpu {
namespace {

TEST(DawnLibrary, TheOneThatWasFetchedIsTheOneThatIsPinned) {
  if (!std::filesystem::exists(DOPPLER_BINARY_DIR "/dawn/libwebgpu_wrapper.so")) GTEST_SKIP() << "Dawn is not here";
  std::string why;
  EXPECT_NE(find_wgpu(&why), nullptr) << why;
}

}  // namespace
}  // namespace doppler::gpu
