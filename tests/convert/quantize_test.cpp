#include "convert/quantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/error.h"
#include "base/half.h"
#include "convert/quantize_kernels.h"
#include "format/decode.h"
#include "support/golden_quants.h"

namespace doppler {
namespace {

using test::decode_matrix;
using test::golden_quants;
using test::relative_rms;

const std::vector<DType> kBlockTypes = {DType::kQ8_0, DType::kQ5_0, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K};
const std::vector<size_t> kAwkwardCols = {1,  2,   15,  16,  17,  31,  32,  33,  63,
                                          65, 100, 255, 256, 257, 300, 511, 513, 1152};

std::vector<std::byte> quantized(DType type, const std::vector<float>& values, size_t rows, size_t cols) {
  std::vector<std::byte> bytes(rows * row_bytes(type, cols));
  for (size_t r = 0; r < rows; ++r) quantize_row(type, &values[r * cols], &bytes[r * row_bytes(type, cols)], cols);
  return bytes;
}

std::vector<float> round_trip(DType type, const std::vector<float>& row) {
  return decode_matrix(type, quantized(type, row, 1, row.size()).data(), 1, row.size());
}

// Weights of several characters; `character` chooses one.
std::vector<float> random_weights(size_t count, int character, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> bell(0, 0.03f);
  std::uniform_real_distribution<float> flat(0, 1);
  std::vector<float> w(count);
  for (float& x : w) {
    switch (character % 6) {
      case 0: x = bell(random); break;
      case 1: x = 0.05f + 0.1f * flat(random); break;                                    // positive
      case 2: x = -0.2f - 0.1f * flat(random); break;                                    // negative
      case 3: x = flat(random) < 0.95f ? 0.0f : 3 * (flat(random) - 0.5f); break;        // zeros and spikes
      case 4: x = bell(random) * std::exp(4 * bell(random) / 0.03f); break;              // scales far apart
      default: x = static_cast<float>(static_cast<int>(8 * flat(random)) - 3) * 0.125f;  // few different values
    }
  }
  return w;
}

TEST(Quantize, ErrorsAreAtOrBelowThoseOfGgml) {
  for (const DType type : kBlockTypes) {
    for (const std::string& kind : test::kQuantKinds) {
      const std::vector<float> source = golden_quants().tensors.at(kind + ".source").floats();
      const std::vector<std::byte> bytes = quantized(type, source, test::kGoldenRows, test::kGoldenCols);
      const double ours = relative_rms(source, decode_matrix(type, bytes.data(), test::kGoldenRows, test::kGoldenCols));
      const double theirs = test::golden_error(kind, std::string(name_of(type)));
      EXPECT_LE(ours, theirs) << name_of(type) << " " << kind;
      EXPECT_GT(ours, 0.2 * theirs) << name_of(type) << " " << kind << ": too good to be measured rightly";
    }
  }
}

TEST(Quantize, PositiveSubBlocksKeepTheirMinimum) {
  const std::vector<float> source = golden_quants().tensors.at("positive.source").floats();
  for (const float sign : {1.0f, -1.0f}) {
    std::vector<float> turned = source;
    for (float& x : turned) x *= sign;
    const std::vector<std::byte> bytes = quantized(DType::kQ4_K, turned, test::kGoldenRows, test::kGoldenCols);
    const double error =
        relative_rms(turned, decode_matrix(DType::kQ4_K, bytes.data(), test::kGoldenRows, test::kGoldenCols));
    EXPECT_LT(error, 0.013) << "with the minimum lost it is 0.025";
  }
}

// One sub-block all positive, the others around zero: counting downwards serves both.
TEST(Quantize, APositiveSubBlockAmongOthersKeepsItsMinimum) {
  std::vector<float> row = random_weights(256, 0, 1);
  const std::vector<float> positive = random_weights(32, 1, 2);
  for (size_t i = 0; i < 32; ++i) row[96 + i] = 1 + positive[i];
  const std::vector<float> decoded = round_trip(DType::kQ4_K, row);
  double error = 0;
  for (size_t i = 96; i < 128; ++i) error += std::pow(static_cast<double>(row[i]) - decoded[i], 2);
  EXPECT_LT(std::sqrt(error / 32), 0.01) << "levels from 0 to 1.15 would miss by 0.02";
}

TEST(Quantize, EveryInstructionSetGivesTheSameBytes) {
  const auto all = quant::kernels();
  ASSERT_FALSE(all.empty());
  EXPECT_STREQ(all.back().name, "portable");
  struct Entry {
    quant::BlockQuantizer quant::Kernels::*kernel;
    size_t weights, bytes;
  };
  const Entry entries[] = {{&quant::Kernels::q8_0, 32, 34},
                           {&quant::Kernels::q5_0, 32, 22},
                           {&quant::Kernels::q4_0, 32, 18},
                           {&quant::Kernels::q4_k, 256, 144},
                           {&quant::Kernels::q6_k, 256, 210}};
  for (const Entry& e : entries) {
    for (uint32_t seed = 0; seed < 300; ++seed) {
      const std::vector<float> w = random_weights(e.weights, static_cast<int>(seed), seed);
      const int n = seed % 3 == 0 ? static_cast<int>(e.weights) : 1 + static_cast<int>(seed * 37 % e.weights);
      std::vector<uint8_t> want(e.bytes, 1), got(e.bytes, 2);
      (all.back().*e.kernel)(w.data(), n, want.data());
      for (const quant::Kernels& k : all) {
        (k.*e.kernel)(w.data(), n, got.data());
        ASSERT_EQ(got, want) << k.name << " seed " << seed << " n " << n << " bytes " << e.bytes;
      }
    }
  }
}

TEST(Quantize, RowsOfAnyLengthAreStoredAboutAsWellAsWholeBlocks) {
  const double bounds[] = {0.006, 0.056, 0.1, 0.085, 0.021};  // kBlockTypes on bell-shaped weights
  for (size_t t = 0; t < kBlockTypes.size(); ++t) {
    for (const size_t cols : kAwkwardCols) {
      double worst = 0;
      for (uint32_t seed = 0; seed < 5; ++seed) {
        const std::vector<float> row = random_weights(cols, 0, seed);
        worst = std::max(worst, relative_rms(row, round_trip(kBlockTypes[t], row)));
      }
      EXPECT_LT(worst, bounds[t]) << name_of(kBlockTypes[t]) << " " << cols;
    }
  }
}

// If the zeros of the padding took part in the fit, the levels of positive weights would stretch down to them.
TEST(Quantize, PaddingDoesNotDisturbTheWeightsBeforeIt) {
  for (const size_t cols : {size_t{5}, size_t{24}, size_t{40}, size_t{150}, size_t{255}, size_t{300}}) {
    std::vector<float> row = random_weights(cols, 1, 3);
    for (float& x : row) x += 1;  // 1.05 … 1.15
    EXPECT_LT(relative_rms(row, round_trip(DType::kQ4_K, row)), 0.004) << cols;
  }
}

TEST(Quantize, PaddingIsExactlyZeroOrAsNearAsTheSubBlockCan) {
  for (const DType type : kBlockTypes) {
    const size_t block = static_cast<size_t>(info(type).block_weights);
    for (const size_t cols : kAwkwardCols) {
      for (int character = 0; character < 6; ++character) {
        const std::vector<float> row = random_weights(cols, character, static_cast<uint32_t>(cols));
        std::vector<std::byte> bytes = quantized(type, row, 1, cols);
        const size_t padded = (cols + block - 1) / block * block;
        const std::vector<float> decoded = decode_matrix(type, bytes.data(), 1, padded);
        for (size_t i = cols; i < padded; ++i) {
          if (type != DType::kQ4_K || i / 32 > (cols - 1) / 32) {
            ASSERT_EQ(decoded[i], 0.0f) << name_of(type) << " " << cols << " at " << i;
            continue;
          }
          // All sixteen levels of this sub-block, by writing each into the weight's nibble.
          std::byte& nibbles = bytes[i / 256 * 144 + 16 + i % 256 / 64 * 32 + i % 32];
          const std::byte kept = nibbles;
          float nearest = std::numeric_limits<float>::infinity();
          for (unsigned q = 0; q < 16; ++q) {
            nibbles = static_cast<std::byte>(q | q << 4);
            nearest = std::min(nearest, std::abs(decode_matrix(type, bytes.data(), 1, padded)[i]));
          }
          nibbles = kept;
          ASSERT_NEAR(std::abs(decoded[i]), nearest, 1e-6f + 1e-4f * nearest) << cols << " at " << i;
        }
      }
    }
  }
}

// The best scale of a block by trying every half near the right size; ours must come close.
TEST(Quantize, OneScaleIsNearTheBestThereIs) {
  struct Case {
    DType type;
    int low, high;
    double one, all;  // how much more squared error is allowed in one block, and in all
  };
  // With 256 levels the error has many shallow valleys, of which sixteen candidates do not see every one.
  for (const Case c : {Case{DType::kQ8_0, -128, 127, 1.6, 1.15}, Case{DType::kQ4_0, -8, 7, 1.2, 1.03}}) {
    double ours_sum = 0, best_sum = 0;
    for (uint32_t seed = 0; seed < 60; ++seed) {
      const std::vector<float> w = random_weights(32, 0, 1000 + seed);
      const std::vector<float> decoded = round_trip(c.type, w);
      float peak = 0;
      double ours = 0;
      for (size_t i = 0; i < 32; ++i) {
        peak = std::max(peak, std::abs(w[i]));
        ours += std::pow(static_cast<double>(w[i]) - decoded[i], 2);
      }
      double best = std::numeric_limits<double>::infinity();
      const uint16_t first = f32_to_f16(0.6f * peak / static_cast<float>(-c.low));
      const uint16_t last = f32_to_f16(1.4f * peak / static_cast<float>(-c.low));
      for (uint32_t half = first; half <= last; ++half) {
        for (const uint32_t sign : {0u, 0x8000u}) {
          const double d = f16_to_f32(static_cast<uint16_t>(half | sign));
          double error = 0;
          for (const float x : w) {
            const double q = std::clamp(std::nearbyint(x / d), static_cast<double>(c.low), static_cast<double>(c.high));
            error += std::pow(x - d * q, 2);
          }
          best = std::min(best, error);
        }
      }
      EXPECT_LE(ours, best * c.one) << name_of(c.type) << " seed " << seed;
      ours_sum += ours;
      best_sum += best;
    }
    EXPECT_LE(ours_sum, best_sum * c.all) << name_of(c.type);
  }
}

TEST(Quantize, WhatIsZeroStaysZero) {
  for (const DType type : kBlockTypes) {
    for (const size_t cols : kAwkwardCols) {
      const std::vector<float> zeros(cols, 0.0f);
      for (const float x : round_trip(type, zeros)) ASSERT_EQ(x, 0.0f) << name_of(type);
    }
    const std::vector<float> tiny(256, 1e-9f);  // below what a half can express
    for (const float x : round_trip(type, tiny)) ASSERT_EQ(x, 0.0f) << name_of(type);
  }
}

TEST(Quantize, OneValueThroughoutIsKept) {
  for (const DType type : kBlockTypes) {
    for (const float value : {1.0f, -1.0f, 0.037f, -300.0f}) {
      const std::vector<float> row(300, value);
      for (const float x : round_trip(type, row)) ASSERT_NEAR(x, value, 0.002f * std::abs(value)) << name_of(type);
    }
  }
}

TEST(Quantize, ALoneSpikeIsKept) {
  for (const DType type : kBlockTypes) {
    for (const size_t place : {size_t{0}, size_t{31}, size_t{100}, size_t{255}}) {
      for (const float spike : {2.5f, -2.5f}) {
        std::vector<float> row(256, 0.0f);
        row[place] = spike;
        const std::vector<float> decoded = round_trip(type, row);
        for (size_t i = 0; i < 256; ++i) ASSERT_NEAR(decoded[i], row[i], 0.002f) << name_of(type) << " at " << i;
      }
    }
  }
}

// The scale of the weights does not matter as long as a half can hold the scale of the block.
TEST(Quantize, AnyMagnitudeIsStoredEquallyWell) {
  const std::vector<float> row = random_weights(1152, 0, 9);
  for (const DType type : kBlockTypes) {
    const double usual = relative_rms(row, round_trip(type, row));
    for (const int exponent : {-3, 3, 11, 20}) {
      std::vector<float> scaled = row;
      for (float& x : scaled) x = std::ldexp(x, exponent);
      EXPECT_NEAR(relative_rms(scaled, round_trip(type, scaled)), usual, 0.02 * usual) << name_of(type) << exponent;
    }
    std::vector<float> small = row;
    for (float& x : small) x *= 0.0004f;  // about 1e-5: the halves run out of precision, the integers must help
    EXPECT_LT(relative_rms(small, round_trip(type, small)), type == DType::kQ4_0 ? 0.12 : 0.5) << name_of(type);
  }
}

TEST(Quantize, TheLargestMagnitudeFitsAndWhatIsLargerStaysFinite) {
  for (const DType type : kBlockTypes) {
    const float largest = largest_magnitude(type);
    for (const float sign : {1.0f, -1.0f}) {
      std::vector<float> row = random_weights(256, 0, 4);
      row[77] = sign * largest;
      EXPECT_NEAR(round_trip(type, row)[77] / row[77], 1.0f, 0.01f) << name_of(type);
      row[77] = sign * std::numeric_limits<float>::max();
      const std::vector<float> decoded = round_trip(type, row);
      EXPECT_TRUE(all_finite(decoded.data(), decoded.size())) << name_of(type);
    }
  }
  EXPECT_EQ(round_trip(DType::kF16, {largest_magnitude(DType::kF16)})[0], 65504.0f);
  EXPECT_TRUE(std::isinf(round_trip(DType::kF16, {65520.0f})[0]));
  const float bf16 = largest_magnitude(DType::kBF16);
  EXPECT_EQ(round_trip(DType::kBF16, {bf16})[0], bf16);
}

TEST(Quantize, ValuesThatAreNotFiniteDoNotCrashIt) {
  for (const DType type : kBlockTypes) {
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> row = random_weights(300, 0, 5);
      row[40] = bad;
      quantized(type, row, 1, row.size());
      quantized(type, std::vector<float>(300, bad), 1, 300);
    }
  }
}

TEST(Quantize, PlainFloatsAreRoundedAsHalfDoes) {
  const std::vector<float> row = random_weights(777, 4, 6);
  EXPECT_EQ(round_trip(DType::kF32, row), row);
  const std::vector<float> f16 = round_trip(DType::kF16, row), bf16 = round_trip(DType::kBF16, row);
  for (size_t i = 0; i < row.size(); ++i) {
    EXPECT_EQ(f16[i], f16_to_f32(f32_to_f16(row[i])));
    EXPECT_EQ(bf16[i], bf16_to_f32(f32_to_bf16(row[i])));
  }
}

TEST(Quantize, TheNumberOfThreadsDoesNotMatter) {
  constexpr size_t kRows = 7, kCols = 300;
  const std::vector<float> matrix = random_weights(kRows * kCols, 4, 7);
  for (const DType type : {DType::kF16, DType::kQ4_K, DType::kQ6_K, DType::kQ8_0}) {
    const std::vector<std::byte> want = quantized(type, matrix, kRows, kCols);
    for (const int threads : {1, 2, 3, 9}) {
      ThreadPool pool(threads);
      std::vector<std::byte> got(want.size());
      quantize_rows(type, matrix.data(), got.data(), kRows, kCols, pool);
      EXPECT_EQ(got, want) << name_of(type) << " on " << threads;
    }
  }
}

TEST(Quantize, TypesThatAreOnlyReadAreRefused) {
  std::vector<float> row(256, 1.0f);
  std::vector<std::byte> out(1024);
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType type = static_cast<DType>(i);
    if (can_quantize(type)) {
      EXPECT_NO_THROW(quantize_row(type, row.data(), out.data(), row.size())) << name_of(type);
    } else {
      EXPECT_THROW(quantize_row(type, row.data(), out.data(), row.size()), Failure) << name_of(type);
    }
  }
}

TEST(Quantize, FiniteMeansEveryValueAtEveryPlace) {
  const float kBad[] = {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                        std::numeric_limits<float>::quiet_NaN(), std::bit_cast<float>(0xff800001u)};
  for (size_t count : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{200}}) {
    std::vector<float> values(count, -std::numeric_limits<float>::max());
    EXPECT_TRUE(all_finite(values.data(), count));
    for (size_t i = 0; i < count; ++i) {
      for (const float bad : kBad) {
        const float kept = values[i];
        values[i] = bad;
        ASSERT_FALSE(all_finite(values.data(), count)) << i << " of " << count;
        values[i] = kept;
      }
    }
  }
}

}  // namespace
}  // namespace doppler
