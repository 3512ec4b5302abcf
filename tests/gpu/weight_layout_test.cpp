#include "gpu/weight_layout.h"

#include <cstring>

#include "base/half.h"
#include "format/dtype.h"
#include "gpu/cases/weight_cases.h"
#include "gpu/gpu_test.h"

namespace doppler::gpu {
namespace {

TEST(WeightLayout, ARowIsNeverMoreThanFifteenBytesLargerThanStored) {
  for (DType dtype : {DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) {
    for (size_t cols = 1; cols < 3000; cols += 7) {
      const size_t packed = packed_row_bytes(dtype, cols);
      EXPECT_EQ(packed % 16, 0u);
      EXPECT_LE(packed, row_bytes(dtype, cols) + 15) << name_of(dtype) << " " << cols;
    }
  }
  EXPECT_EQ(packed_row_bytes(DType::kQ4_K, 1152), 656u);  // 36 pieces and 5 headers; stored: 720
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
      const size_t piece = i / 32, at = i % 32, j = piece % 8;
      uint32_t header[4];
      std::memcpy(header, bytes + 36 * 16 + piece / 8 * 16, 16);
      const uint8_t pair = bytes[piece * 16 + at % 16];
      const int q = at < 16 ? pair & 15 : pair >> 4;
      const uint32_t scale = (header[1] >> (4 * j) & 15) | (header[3] >> (2 * j) & 3) << 4;
      const uint32_t min = (header[2] >> (4 * j) & 15) | (header[3] >> (16 + 2 * j) & 3) << 4;
      const float d = f16_to_f32(static_cast<uint16_t>(header[0])),
                  dmin = f16_to_f32(static_cast<uint16_t>(header[0] >> 16));
      const float got = d * static_cast<float>(scale) * static_cast<float>(q) - dmin * static_cast<float>(min);
      ASSERT_EQ(got, expected[i]) << "row " << r << " weight " << i;
    }
  }
}

TEST(WeightLayout, RefusesTypesWithoutKernels) {
  EXPECT_FALSE(is_packable(DType::kIQ1_S));
  EXPECT_EQ(error_of([] { packed_row_bytes(DType::kQ5_K, 256); }).code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace doppler::gpu
