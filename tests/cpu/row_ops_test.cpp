// Operations on rows, for every instruction set this machine has, over awkward widths.
#include <gtest/gtest.h>

#include <cmath>

#include "cpu/isa.h"
#include "ref/ops.h"
#include "test_random.h"

namespace doppler::cpu {
namespace {

using doppler::testing::Random;

constexpr int kWidths[] = {1, 2, 7, 8, 15, 16, 17, 31, 33, 48, 96, 100, 160, 255, 256, 257, 320, 1152};

class RowOps : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& k() const { return *GetParam(); }
};

TEST_P(RowOps, ExpStaysWithinItsBound) {
  std::vector<float> x, y;
  for (double v = -87; v <= 87; v += 0.00137) x.push_back(static_cast<float>(v));
  y.resize(x.size());
  k().exp(x.data(), y.data(), static_cast<int>(x.size()));
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, std::fabs(y[i] / std::exp(double{x[i]}) - 1));
  EXPECT_LE(worst, 3e-7);
}

TEST_P(RowOps, ExpOfExtremesIsTinyHugeOrNotANumber) {
  const float x[] = {-1000, -INFINITY, 1000, NAN};
  float y[4];
  k().exp(x, y, 4);
  EXPECT_LE(y[0], 2e-38f);
  EXPECT_LE(y[1], 2e-38f);
  EXPECT_GE(y[2], 1e38f);
  EXPECT_TRUE(std::isnan(y[3]));
}

TEST_P(RowOps, NormAgreesWithTheReference) {
  Random random(1);
  for (const int group : kWidths) {
    for (const int groups : {1, 3}) {
      const int n = group * groups;
      const auto x = random.bells(static_cast<size_t>(n), 50), w = random.bells(static_cast<size_t>(group));
      std::vector<float> with_offset = w, out(x.size()), expected(x.size());
      for (float& v : with_offset) v += 1;
      k().norm(x.data(), with_offset.data(), out.data(), n, group, 1e-6f);
      ref::norm(x, w, 1e-6f, 1, expected);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_NEAR(out[i], expected[i], 2e-6 * (1 + std::fabs(expected[i]))) << "group " << group << " at " << i;
      }
    }
  }
}

TEST_P(RowOps, AddAndAxpy) {
  Random random(2);
  for (const int n : kWidths) {
    const auto a = random.bells(static_cast<size_t>(n)), b = random.bells(static_cast<size_t>(n));
    std::vector<float> sum(a.size() + 1, 77.0f), scaled = b;
    k().add(a.data(), b.data(), sum.data(), n);
    k().axpy(0.5f, a.data(), scaled.data(), n);
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(sum[i], a[i] + b[i]);
      ASSERT_NEAR(scaled[i], 0.5f * a[i] + b[i], 1e-6);
    }
    ASSERT_EQ(sum.back(), 77.0f) << "wrote past the end of " << n;
  }
}

TEST_P(RowOps, RopeAgreesWithTheReference) {
  Random random(3);
  for (const int dim : {2, 6, 16, 24, 64, 96, 128, 256}) {
    for (const double rotated : {1.0, 0.5, 0.0}) {
      if (static_cast<int>(dim * rotated) % 2) continue;
      const RopeTable table = make_rope_table(RopeConfig{.rotated = rotated}, dim);
      const int width = dim * 3, position = 1234;
      const auto x = random.bells(static_cast<size_t>(width));
      std::vector<float> cosines, sines, out(x.size()), expected(x.size());
      for (const float f : table.inv_freq) {
        cosines.push_back(static_cast<float>(std::cos(double{position} * f)));
        sines.push_back(static_cast<float>(std::sin(double{position} * f)));
      }
      k().rope(x.data(), cosines.data(), sines.data(), out.data(), width, dim, static_cast<int>(dim * rotated));
      ref::rope(x, width, dim, table, position, expected);
      for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(out[i], expected[i], 1e-6) << "head size " << dim;
    }
  }
}

TEST_P(RowOps, GluAgreesWithTheReferenceApartAndInterleaved) {
  Random random(4);
  for (const Activation activation : {Activation::kGeluTanh, Activation::kSilu, Activation::kClampedSwiglu}) {
    const Glu op{activation, false, 7, 1.702f};
    const GluParams params{static_cast<int>(activation), 7, 1.702f};
    for (const int n : kWidths) {
      auto gate = random.bells(static_cast<size_t>(n), 4), up = random.bells(static_cast<size_t>(n), 4);
      gate[0] = 90;  // far out on either side
      up[0] = -30;
      gate[static_cast<size_t>(n) / 2] = -90;
      std::vector<float> both, out(gate.size()), apart(gate.size()), expected(gate.size());
      for (size_t i = 0; i < gate.size(); ++i) {
        both.push_back(gate[i]);
        both.push_back(up[i]);
      }
      k().glu(params, gate.data(), up.data(), apart.data(), n);
      k().glu_interleaved(params, both.data(), out.data(), n);
      ref::glu(op, gate, up, expected);
      for (size_t i = 0; i < gate.size(); ++i) {
        ASSERT_NEAR(apart[i], expected[i], 2e-6 * (1 + std::fabs(expected[i]))) << name_of(activation) << " " << n;
        ASSERT_EQ(apart[i], out[i]) << name_of(activation) << " " << n;
      }
    }
  }
}

TEST_P(RowOps, SoftcapAgreesWithTheReference) {
  Random random(5);
  for (const float cap : {30.0f, 50.0f}) {
    for (const int n : kWidths) {
      const auto x = random.bells(static_cast<size_t>(n), 40);
      std::vector<float> out(x.size()), expected(x.size());
      k().softcap(x.data(), out.data(), n, cap);
      ref::softcap(x, cap, expected);
      for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(out[i], expected[i], 3e-7 * cap);
    }
  }
}

TEST_P(RowOps, SixteenBitsAreWithinHalfAStepOfTheLargest) {
  Random random(6);
  for (const int n : kWidths) {
    for (const float sigma : {1e-6f, 1.0f, 3e7f}) {
      const auto x = random.bells(static_cast<size_t>(n), sigma);
      std::vector<int16_t> out(x.size() + 1, 77);
      const float scale = k().to_i16(x.data(), out.data(), n);
      float most = 0;
      for (const float v : x) most = std::max(most, std::fabs(v));
      ASSERT_FLOAT_EQ(scale, most / 32767);
      for (size_t i = 0; i < x.size(); ++i) ASSERT_LE(std::fabs(x[i] - scale * out[i]), scale * 0.51f);
      ASSERT_EQ(out.back(), 77) << "wrote past the end of " << n;
    }
  }
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> x(40, 1.0f);
    x[33] = bad;
    std::vector<int16_t> out(40, 5);
    EXPECT_TRUE(std::isnan(k().to_i16(x.data(), out.data(), 40)));
    EXPECT_EQ(out, std::vector<int16_t>(40, 0));
  }
  const std::vector<float> nothing(20, 0.0f);
  std::vector<int16_t> out(20, 5);
  EXPECT_EQ(k().to_i16(nothing.data(), out.data(), 20), 0.0f);
  EXPECT_EQ(out, std::vector<int16_t>(20, 0));
}

TEST_P(RowOps, QuantisedActivationsAreWithinHalfAStepAndTheTailIsZero) {
  Random random(7);
  for (const int n : kWidths) {
    auto x = random.bells(static_cast<size_t>(n), 3);
    if (n > 40) x[40] = 900;  // an outlier coarsens only its own group
    const size_t blocks = (x.size() + kBlock - 1) / kBlock;
    std::vector<ActBlock> out(blocks);
    std::memset(static_cast<void*>(out.data()), 0x5a, blocks * sizeof(ActBlock));
    k().quantize(x.data(), n, out.data());
    for (size_t g = 0; g < blocks * 8; ++g) {
      const ActBlock& block = out[g / 8];
      const int8_t* q = block.q + group_offset(static_cast<int>(g % 8));
      const float d = block.d[g % 8];
      int sums[2] = {0, 0};
      float most = 0;
      for (size_t i = 0; i < 32; ++i) {
        const size_t at = g * 32 + i;
        const float value = at < x.size() ? x[at] : 0.0f;
        most = std::max(most, std::fabs(value));
        ASSERT_LE(std::fabs(value - d * q[i]), d * 0.5001f) << "of " << n << " at " << at;
        sums[i / 16] += q[i];
      }
      ASSERT_FLOAT_EQ(d, most / 127);
      ASSERT_EQ(block.zero16[g % 8 * 2], -32 * sums[0]);
      ASSERT_EQ(block.zero16[g % 8 * 2 + 1], -32 * sums[1]);
      ASSERT_FLOAT_EQ(block.ds[g % 8], d * static_cast<float>(sums[0] + sums[1]));
    }
  }
}

TEST_P(RowOps, BytesAreWithinHalfAStepOfTheirBlockAlsoWrittenOverWhatTheyCameFrom) {
  if (!k().quantize_bytes) GTEST_SKIP() << "no format of " << k().name << " reads them";
  Random random(10);
  for (const int n : kWidths) {
    const auto x = random.bells(static_cast<size_t>(n), 3);
    const size_t blocks = (x.size() + kBlock - 1) / kBlock;
    std::vector<ByteBlock> out(blocks), over((x.size() * sizeof(float)) / sizeof(ByteBlock) + blocks);
    std::memset(static_cast<void*>(out.data()), 0x5a, blocks * sizeof(ByteBlock));
    std::memcpy(static_cast<void*>(over.data()), x.data(), x.size() * sizeof(float));
    k().quantize_bytes(x.data(), n, out.data());
    k().quantize_bytes(reinterpret_cast<const float*>(over.data()), n, over.data());
    for (size_t b = 0; b < blocks; ++b) {
      int sum = 0;
      float most = 0;
      for (size_t i = 0; i < kBlock; ++i) {
        const float value = b * kBlock + i < x.size() ? x[b * kBlock + i] : 0.0f;
        most = std::max(most, std::fabs(value));
        ASSERT_LE(std::fabs(value - out[b].d * out[b].q[i]), out[b].d * 0.5001f) << "of " << n << " at " << i;
        ASSERT_EQ(over[b].q[i], out[b].q[i]) << "of " << n << " at " << i;
        sum += out[b].q[i];
      }
      ASSERT_FLOAT_EQ(out[b].d, most / 127);
      ASSERT_EQ(over[b].d, out[b].d);
      ASSERT_EQ(out[b].zero, -128 * sum);
      ASSERT_EQ(over[b].zero, out[b].zero);
    }
  }
}

TEST_P(RowOps, WideActivationsAreWithinHalfAStepOfFifteenBits) {
  Random random(9);
  for (const int n : kWidths) {
    const auto x = random.bells(static_cast<size_t>(n), 3);
    const size_t blocks = (x.size() + kBlock - 1) / kBlock;
    std::vector<WideBlock> out(blocks);
    std::memset(static_cast<void*>(out.data()), 0x5a, blocks * sizeof(WideBlock));
    k().quantize_wide(x.data(), n, out.data());
    for (size_t g = 0; g < blocks * 8; ++g) {
      const WideBlock& block = out[g / 8];
      const float d = block.d[g % 8];
      int sum = 0;
      float most = 0;
      for (size_t i = 0; i < 32; ++i) {
        const size_t at = g * 32 + i, place = static_cast<size_t>(group_offset(static_cast<int>(g % 8))) + i;
        const float value = at < x.size() ? x[at] : 0.0f;
        const int q = block.high[place] * 128 + block.low[place];
        most = std::max(most, std::fabs(value));
        ASSERT_LE(std::fabs(value - d * static_cast<float>(q)), d * 0.51f) << "of " << n << " at " << at;
        sum += q;
      }
      ASSERT_FLOAT_EQ(d, most / (127 * 128));
      ASSERT_FLOAT_EQ(block.ds[g % 8], d * static_cast<float>(sum));
    }
  }
}

TEST_P(RowOps, EveryInstructionSetQuantisesToTheSameBytes) {
  Random random(8);
  const auto x = random.bells(1152, 7);
  std::vector<ActBlock> mine(5), plain(5);
  std::memset(static_cast<void*>(mine.data()), 0, 5 * sizeof(ActBlock));
  std::memset(static_cast<void*>(plain.data()), 0, 5 * sizeof(ActBlock));
  k().quantize(x.data(), 1152, mine.data());
  kPortableKernels.quantize(x.data(), 1152, plain.data());
  EXPECT_EQ(std::memcmp(mine.data(), plain.data(), 5 * sizeof(ActBlock)), 0);
  std::vector<WideBlock> my_wide(5), plain_wide(5);
  k().quantize_wide(x.data(), 1152, my_wide.data());
  kPortableKernels.quantize_wide(x.data(), 1152, plain_wide.data());
  EXPECT_EQ(std::memcmp(my_wide.data(), plain_wide.data(), 5 * sizeof(WideBlock)), 0);
}

TEST_P(RowOps, ValuesThatAreNotFiniteAreNotQuantisedAway) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> x(64, 1.0f);
    x[35] = bad;
    ActBlock block;
    k().quantize(x.data(), 64, &block);
    EXPECT_FALSE(std::isnan(block.d[0]));
    EXPECT_TRUE(std::isnan(block.d[1]));
    EXPECT_TRUE(std::isnan(block.ds[1]));
    if (!k().quantize_bytes) continue;
    ByteBlock bytes;
    k().quantize_bytes(x.data(), 64, &bytes);
    EXPECT_TRUE(std::isnan(bytes.d));
  }
}

std::string isa_name(const ::testing::TestParamInfo<const Kernels*>& info) { return info.param->name; }
INSTANTIATE_TEST_SUITE_P(Isa, RowOps, ::testing::ValuesIn(available_kernels()), isa_name);

}  // namespace
}  // namespace doppler::cpu
