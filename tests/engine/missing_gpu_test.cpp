#include "engine/missing_gpu.h"

#include <gmock/gmock.h>

#include "support/scratch.h"

namespace doppler {
namespace {

using ::testing::HasSubstr;

void plug_in(const testing::Scratch& scratch, const std::string& slot, const std::string& kind,
             const std::string& vendor, const std::string& device) {
  std::filesystem::create_directory(scratch / slot);
  testing::spill(scratch / slot / "class", kind + "\n");
  testing::spill(scratch / slot / "vendor", vendor + "\n");
  testing::spill(scratch / slot / "device", device + "\n");
}

TEST(MissingGpu, OnlyControllersThatComputeCount) {
  const testing::Scratch scratch;
  const std::string folder = (scratch / "").string();
  EXPECT_TRUE(pci_gpus(folder).empty());
  EXPECT_TRUE(pci_gpus(folder + "nowhere").empty());
  plug_in(scratch, "0000:00:01.0", "0x030000", "0x1a03", "0x2000");  // a server's console
  plug_in(scratch, "0000:00:02.0", "0x020000", "0x8086", "0x1521");  // Intel's, but a network card
  EXPECT_TRUE(pci_gpus(folder).empty());
  plug_in(scratch, "0000:00:03.0", "0x030000", "0x8086", "0x4680");
  plug_in(scratch, "0000:01:00.0", "0x030200", "0x10de", "0x2335");  // 3D controller without a screen
  const std::vector<PciGpu> gpus = pci_gpus(folder);
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].vendor, 0x10deu) << "the discrete one first";
  EXPECT_EQ(gpus[0].device, 0x2335u);
}

TEST(MissingGpu, SaysWhichIsLeftOutWhyAndWhatToDo) {
  EXPECT_EQ(explain_missing_gpu({}), "no GPU was found");
  GpuSituation intel{.gpus = {{0x8086, 0x4680}}}, nvidia{.gpus = {{0x10de, 0x2335}}};
  EXPECT_THAT(explain_missing_gpu(intel), HasSubstr("the Intel GPU 8086:4680 is left out"));
  EXPECT_THAT(explain_missing_gpu(intel), HasSubstr("Install mesa-vulkan-drivers"));
  EXPECT_THAT(explain_missing_gpu(nvidia), HasSubstr("Install NVIDIA's driver"));
  nvidia.denied = "/dev/nvidiactl";
  EXPECT_THAT(explain_missing_gpu(nvidia), HasSubstr("you may not open /dev/nvidiactl"));
  nvidia.vulkan_loader = false;
  EXPECT_THAT(explain_missing_gpu(nvidia), HasSubstr("Install libvulkan1"));
  nvidia.webgpu_library = false;
  EXPECT_THAT(explain_missing_gpu(nvidia), HasSubstr("tools/setup.sh dawn"));
}

}  // namespace
}  // namespace doppler
