#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "convert/quantize.h"
#include "format/decode.h"

namespace doppler {
namespace {

TEST(RepackMxfp4, EveryElementKeepsItsValue) {
  constexpr double kMagnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  constexpr size_t kBlocks = 500;
  std::mt19937 random(11);
  std::vector<std::byte> blocks(kBlocks * 16), scales(kBlocks), packed(kBlocks * 17);
  for (std::byte& b : blocks) b = static_cast<std::byte>(random());
  for (std::byte& s : scales) s = static_cast<std::byte>(random() % 250);
  ASSERT_TRUE(repack_mxfp4_hf(blocks.data(), scales.data(), packed.data(), kBlocks));
  std::vector<float> decoded(kBlocks * 32);
  decode_row(DType::kMXFP4, packed.data(), decoded.data(), decoded.size());
  for (size_t i = 0; i < decoded.size(); ++i) {
    const unsigned byte = std::to_integer<unsigned>(blocks[i / 2]);
    const unsigned code = i % 2 == 0 ? byte & 15 : byte >> 4;
    const int scale = std::to_integer<int>(scales[i / 32]);
    const double want = (code & 8 ? -1 : 1) * kMagnitudes[code & 7] * std::ldexp(1.0, scale - 127);
    ASSERT_EQ(decoded[i], static_cast<float>(want)) << i;
  }
}

TEST(RepackMxfp4, ScalesThatMeanNoFiniteNumberAreReported) {
  std::vector<std::byte> blocks(48), scales = {std::byte{127}, std::byte{255}, std::byte{0}}, packed(51);
  EXPECT_FALSE(repack_mxfp4_hf(blocks.data(), scales.data(), packed.data(), 3)) << "255 is NaN";
  scales[1] = std::byte{253};
  EXPECT_FALSE(repack_mxfp4_hf(blocks.data(), scales.data(), packed.data(), 3)) << "6 times 2^126 overflows";
  scales[1] = std::byte{252};
  EXPECT_TRUE(repack_mxfp4_hf(blocks.data(), scales.data(), packed.data(), 3));
}

}  // namespace
}  // namespace doppler
