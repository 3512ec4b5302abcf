#include "gpu/ops/weight_layout.h"

#include <cmath>
#include <cstring>

#include "base/half.h"
#include "format/dtype.h"
#include "gpu/cases/weight_cases.h"
#include "gpu/gpu_test.h"

namespace doppler::gpu {
namespace {

TEST(WeightLayout, ARowIsHardlyLargerThanStored) {
  for (DType dtype : {DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) {
    for (size_t cols = 1; cols < 3000; cols += 7) {
      const size_t packed = packed_row_bytes(dtype, cols), blocks = (cols + 255) / 256;
      EXPECT_EQ(packed % 16, 0u);
      EXPECT_LE(packed, row_bytes(dtype, cols) + (dtype == DType::kQ8_0 ? 0 : 16 * blocks) + 15)
          << name_of(dtype) << " " << cols;
    }
  }
  EXPECT_EQ(packed_row_bytes(DType::kQ4_K, 1152), 720u);
  EXPECT_EQ(packed_row_bytes(DType::kF16, 1152), 2304u);
}

TEST(WeightLayout, PackingQ4KKeepsEveryWeight) {
  const RandomMatrix matrix(DType::kQ4_K, 3, 1152, 5);
  for (int64_t r = 0; r < 3; ++r) {
    std::vector<std::byte> packed(packed_row_bytes(DType::kQ4_K, 1152));
    pack_row(DType::kQ4_K, matrix.tensor.row(r), packed.data(), 1152);
    const auto* bytes = reinterpret_cast<const uint8_t*>(packed.data());
    const std::vector<float> expected = matrix.row(r);
    for (size_t i = 0; i < 1152; ++i) {
      const size_t piece = i / 32, at = i % 32;
      const uint8_t both = bytes[piece * 16 + at % 16];
      const int q = at < 16 ? both & 15 : both >> 4;
      const uint8_t* pair = bytes + 36 * 16 + piece / 2 * 8;
      uint16_t d_bits, dmin_bits;
      std::memcpy(&d_bits, pair, 2);
      std::memcpy(&dmin_bits, pair + 4, 2);
      const int scale = pair[piece % 2 * 4 + 2], min = pair[piece % 2 * 4 + 3];
      const float d = f16_to_f32(d_bits), dmin = f16_to_f32(dmin_bits);
      const float got = d * static_cast<float>(scale) * static_cast<float>(q) - dmin * static_cast<float>(min);
      ASSERT_EQ(got, expected[i]) << "row " << r << " weight " << i;
    }
  }
}

TEST(WeightLayout, PackingMxfp4KeepsEveryWeight) {
  const RandomMatrix matrix(DType::kMXFP4, 3, 176, 5);  // 5.5 pieces
  constexpr float kLevels[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
  for (int64_t r = 0; r < 3; ++r) {
    std::vector<std::byte> packed(packed_row_bytes(DType::kMXFP4, 176));
    ASSERT_EQ(packed.size(), 112u);
    pack_row(DType::kMXFP4, matrix.tensor.row(r), packed.data(), 176);
    const auto* bytes = reinterpret_cast<const uint8_t*>(packed.data());
    const std::vector<float> expected = matrix.row(r);
    for (size_t i = 0; i < 176; ++i) {
      const uint8_t both = bytes[i / 32 * 16 + i % 16];
      const int code = i % 32 < 16 ? both & 15 : both >> 4;
      const float size = std::ldexp(kLevels[code & 7], bytes[6 * 16 + i / 32] - 126);
      ASSERT_EQ(code & 8 ? -size : size, expected[i]) << "row " << r << " weight " << i;
    }
  }
}

TEST(WeightLayout, RefusesTypesWithoutKernels) {
  EXPECT_FALSE(is_packable(DType::kIQ1_S));
  EXPECT_EQ(error_of([] { packed_row_bytes(DType::kQ5_K, 256); }).code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace doppler::gpu
