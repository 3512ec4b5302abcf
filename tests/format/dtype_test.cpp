#include "format/dtype.h"

#include <gtest/gtest.h>

#include <cctype>
#include <limits>
#include <string>

#include "base/error.h"

namespace doppler {
namespace {

TEST(DType, EveryTypeIsFoundByItsNameInAnyCase) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType type = static_cast<DType>(i);
    std::string name(name_of(type));
    DType found = DType::kF32;
    ASSERT_TRUE(dtype_from_name(name, found)) << name;
    EXPECT_EQ(found, type) << name;
    for (char& c : name) c = static_cast<char>(std::tolower(c));
    ASSERT_TRUE(dtype_from_name(name, found)) << name;
    EXPECT_EQ(found, type) << name;
  }
}

TEST(DType, TheMixtureNameOfAnArtefactMeansQ4K) {
  DType found = DType::kF32;
  ASSERT_TRUE(dtype_from_name("Q4_K_M", found));
  EXPECT_EQ(found, DType::kQ4_K);
}

TEST(DType, UnknownNamesAreRefusedAndLeaveTheResultAlone) {
  for (const char* name : {"", "Q4", "Q4_K_", "Q9_0", "F320", " F32"}) {
    DType found = DType::kQ6_K;
    EXPECT_FALSE(dtype_from_name(name, found)) << name;
    EXPECT_EQ(found, DType::kQ6_K);
  }
}

TEST(DType, RowsTakeWholeBlocks) {
  EXPECT_EQ(row_bytes(DType::kF32, 7), 28u);
  EXPECT_EQ(row_bytes(DType::kBF16, 7), 14u);
  EXPECT_EQ(row_bytes(DType::kQ4_K, 0), 0u);
  EXPECT_EQ(row_bytes(DType::kQ4_K, 1), 144u);
  EXPECT_EQ(row_bytes(DType::kQ4_K, 256), 144u);
  EXPECT_EQ(row_bytes(DType::kQ4_K, 257), 288u);
  EXPECT_EQ(row_bytes(DType::kQ4_K, 1152), 5u * 144u);
  EXPECT_EQ(row_bytes(DType::kQ6_K, 1152), 5u * 210u);
  EXPECT_EQ(row_bytes(DType::kQ8_0, 1152), 36u * 34u);
  EXPECT_EQ(row_bytes(DType::kQ8_0, 33), 68u);
  EXPECT_EQ(row_bytes(DType::kMXFP4, 2880), 90u * 17u);
}

TEST(DType, BitsPerWeightAreThePublishedOnes) {
  const auto bits = [](DType t) { return 8.0 * info(t).block_bytes / info(t).block_weights; };
  EXPECT_DOUBLE_EQ(bits(DType::kQ2_K), 2.625);
  EXPECT_DOUBLE_EQ(bits(DType::kQ3_K), 3.4375);
  EXPECT_DOUBLE_EQ(bits(DType::kQ4_K), 4.5);
  EXPECT_DOUBLE_EQ(bits(DType::kQ5_K), 5.5);
  EXPECT_DOUBLE_EQ(bits(DType::kQ6_K), 6.5625);
  EXPECT_DOUBLE_EQ(bits(DType::kIQ1_S), 1.5625);
  EXPECT_DOUBLE_EQ(bits(DType::kIQ2_XXS), 2.0625);
  EXPECT_DOUBLE_EQ(bits(DType::kIQ2_XS), 2.3125);
  EXPECT_DOUBLE_EQ(bits(DType::kIQ2_S), 2.5625);
  EXPECT_DOUBLE_EQ(bits(DType::kIQ3_XXS), 3.0625);
  EXPECT_DOUBLE_EQ(bits(DType::kIQ3_S), 3.4375);
  EXPECT_DOUBLE_EQ(bits(DType::kIQ4_XS), 4.25);
  EXPECT_DOUBLE_EQ(bits(DType::kMXFP4), 4.25);
}

TEST(DType, AnAbsurdRowIsAnErrorAndNotAWrappedNumber) {
  EXPECT_THROW(row_bytes(DType::kF32, std::numeric_limits<size_t>::max() / 2), Failure);
  EXPECT_THROW(info(static_cast<DType>(200)), Failure);
}

}  // namespace
}  // namespace doppler
