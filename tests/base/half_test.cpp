#include "base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace doppler {
namespace {

bool is_nan_half(uint16_t h) { return (h & 0x7c00u) == 0x7c00u && (h & 0x3ffu) != 0; }

TEST(Half, EveryHalfSurvivesTheWayToFloatAndBack) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint16_t h = static_cast<uint16_t>(i);
    const float f = f16_to_f32(h);
    if (is_nan_half(h)) {
      ASSERT_TRUE(std::isnan(f)) << i;
      ASSERT_TRUE(is_nan_half(f32_to_f16(f))) << i;
      ASSERT_EQ(f32_to_f16(f) & 0x8000u, h & 0x8000u) << i;
    } else {
      ASSERT_EQ(f32_to_f16(f), h) << i;
    }
  }
}

TEST(Half, EveryHalfHasTheValueItsFieldsSay) {
  for (uint32_t i = 0; i < 0x7c00u; ++i) {
    const int exponent = static_cast<int>(i >> 10), mantissa = static_cast<int>(i & 0x3ffu);
    const double want = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(f16_to_f32(static_cast<uint16_t>(i)), want) << i;
    ASSERT_EQ(f16_to_f32(static_cast<uint16_t>(i | 0x8000u)), -want) << i;
  }
  EXPECT_TRUE(std::signbit(f16_to_f32(0x8000)));
  EXPECT_EQ(f16_to_f32(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_EQ(f16_to_f32(0xfc00), -std::numeric_limits<float>::infinity());
}

// Between every two neighbouring halves: the middle goes to the even one, a step to either side to the nearer one.
TEST(Half, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t i = 0; i + 1 < 0x7c00u; ++i) {
    const uint16_t low = static_cast<uint16_t>(i), high = static_cast<uint16_t>(i + 1);
    const float middle = (f16_to_f32(low) + f16_to_f32(high)) * 0.5f;  // exact: f32 has the bits
    ASSERT_EQ(f32_to_f16(middle), i % 2 == 0 ? low : high) << i;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), low) << i;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 1e9f)), high) << i;
    ASSERT_EQ(f32_to_f16(-middle), (i % 2 == 0 ? low : high) | 0x8000u) << i;
  }
}

TEST(Half, TheEndsOfTheRange) {
  EXPECT_EQ(f32_to_f16(65504.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-3e38f), 0xfc00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0x0000);  // half the least subnormal: a tie, to even
  EXPECT_EQ(f32_to_f16(std::nextafter(0x1p-25f, 1.0f)), 0x0001);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0x0000);
  EXPECT_EQ(f32_to_f16(-0.0f), 0x8000);
}

TEST(Half, EveryBfloatSurvivesTheWayToFloatAndBack) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint16_t b = static_cast<uint16_t>(i);
    const float f = bf16_to_f32(b);
    if (std::isnan(f)) {
      ASSERT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(f)))) << i;
    } else {
      ASSERT_EQ(f32_to_bf16(f), b) << i;
    }
  }
}

TEST(Half, BfloatRoundsToTheNearestAndTiesToEven) {
  for (uint32_t i = 0; i + 1 < 0x7f80u; ++i) {
    const uint32_t middle = i << 16 | 0x8000u;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(middle)), i + i % 2) << i;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(middle - 1)), i) << i;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(middle + 1)), i + 1) << i;
  }
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));  // payload in the lost bits
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) uint16_t hardware_f16(float f) {
  return static_cast<uint16_t>(_cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT));
}
__attribute__((target("avx,f16c"))) float hardware_f32(uint16_t h) { return _cvtsh_ss(h); }

TEST(Half, AgreesWithTheProcessor) {
  if (!__builtin_cpu_supports("avx") || !__builtin_cpu_supports("f16c")) GTEST_SKIP() << "no F16C here";
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint16_t h = static_cast<uint16_t>(i);
    if (is_nan_half(h)) continue;
    ASSERT_EQ(f16_to_f32(h), hardware_f32(h)) << i;
  }
  // Every exponent and sign with mantissas that differ in the bits rounding looks at, and an odd stride through all.
  for (uint64_t bits = 0; bits < 0x100000000u; bits += 0x3fbu) {
    const float f = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (std::isnan(f)) continue;
    ASSERT_EQ(f32_to_f16(f), hardware_f16(f)) << std::hex << bits;
  }
}
#endif

}  // namespace
}  // namespace doppler
