// Products with weights of every format: what the kernels compute must be the exact product of the decoded weights and
// the (quantised) activations, up to rounding of f32 sums.
#include "cpu/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cpu/formats_avx512.h"
#include "cpu/isa.h"
#include "cpu/memory.h"
#include "cpu/packed_weights.h"
#include "test_random.h"

namespace doppler::cpu {
namespace {

using doppler::testing::halves_of;
using doppler::testing::OwnedTensor;
using doppler::testing::Random;

constexpr DType kTypes[] = {DType::kF32,   DType::kF16,  DType::kBF16,   DType::kQ8_0,   DType::kQ4_K, DType::kQ6_K,
                            DType::kMXFP4, DType::kQ4_0, DType::kQ4_1,   DType::kQ5_0,   DType::kQ5_1, DType::kQ2_K,
                            DType::kQ3_K,  DType::kQ5_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kIQ3_S};
// Those of code_blocks.h, and the two that are packed without it.
constexpr DType kCodeTypes[] = {DType::kQ4_0, DType::kQ4_1,   DType::kQ5_0,   DType::kQ5_1, DType::kQ2_K, DType::kQ3_K,
                                DType::kQ5_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kQ4_K, DType::kQ6_K};
// ggml's rows are whole blocks; types that only it writes need no others.
bool has_whole_blocks(DType type, int cols) { return can_quantize(type) || cols % info(type).block_weights == 0; }
constexpr int kCols[] = {1, 16, 30, 32, 96, 100, 160, 256, 288, 320, 512, 544, 777, 1152, 2880};

// A matrix as an executor multiplies with it.
struct Matrix {
  ThreadPool pool{1};
  PackedWeights packed;
  Linear linear;
  Memory tile{kTileBytes, "test"};
  std::vector<float> decoded;
  LinearScratch scratch;

  Matrix(const Kernels& kernels, const Tensor& tensor) {
    const Tensor* tensors[] = {&tensor};
    packed = PackedWeights(kernels, tensors, pool);
    linear = packed.linear(kernels, tensor);
    decoded.resize(decoded_floats(linear) + 1);
    scratch = {tile.data(), decoded.data()};
  }
  int some_row() const { return linear.packed ? kStripRows : 2; }  // that products may begin with
};

class LinearTest : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& k() const { return *GetParam(); }
};

// Activations of `tokens` rows as the matrix wants them, and as the f32 they stand for.
struct Inputs {
  std::vector<float> exact;
  Memory blocks;
  std::vector<const void*> rows;
  std::vector<float> floats;

  // As `many` tokens are held, or as few.
  Inputs(const Kernels& kernels, const Linear& matrix, int tokens, bool gemm, Random& random) {
    const size_t cols = static_cast<size_t>(matrix.cols);
    floats = random.bells(cols * static_cast<size_t>(tokens), 2);
    exact = floats;
    const size_t bytes = input_row_bytes(matrix.input(), matrix.cols);
    blocks = Memory(bytes * static_cast<size_t>(tokens), "test");
    for (size_t t = 0; t < static_cast<size_t>(tokens); ++t) {
      const float* row = floats.data() + t * cols;
      if (matrix.input() == Input::kF32) {
        rows.push_back(row);
        continue;
      }
      std::byte* to = blocks.data() + t * bytes;
      quantize_input(kernels, matrix.input(), gemm, row, matrix.cols, to);
      rows.push_back(to);
      for (size_t i = 0; i < cols; ++i) exact[t * cols + i] = value(matrix.input(), gemm, to, i);
    }
  }

  static float value(Input input, bool gemm, const void* blocks, size_t i) {
    if (input == Input::kInt8OrBytes && gemm) {
      const ByteBlock& b = static_cast<const ByteBlock*>(blocks)[i / kBlock];
      return b.d * b.q[i % kBlock];
    }
    const int g = static_cast<int>(i % kBlock / kGroup), at = group_offset(g) + static_cast<int>(i % kGroup);
    if (input != Input::kInt15) {
      const ActBlock& b = static_cast<const ActBlock*>(blocks)[i / kBlock];
      return b.d[g] * b.q[at];
    }
    const WideBlock& b = static_cast<const WideBlock*>(blocks)[i / kBlock];
    return b.d[g] * static_cast<float>(b.high[at] * 128 + b.low[at]);
  }
};

struct Sum {
  double value = 0, size = 0;  // Σ w·x and Σ |w·x|
};
Sum product(const float* w, const float* x, int cols) {
  Sum s;
  for (int i = 0; i < cols; ++i) {
    s.value += static_cast<double>(w[i]) * x[i];
    s.size += std::fabs(static_cast<double>(w[i]) * x[i]);
  }
  return s;
}

// Sums of n products in f32 round by about √n · 2^-24 of their size; minima and zero points cancel, which costs a
// little more.
double bound(const Sum& sum) { return 3e-6 * sum.size + 1e-6; }
// Where many tokens are multiplied in bytes, weights are rounded to half a 127th of the largest of their block (of
// those that its scales allow, which may be larger than those that are there).
double bound_of_gemm(const Linear& matrix, const Sum& sum, const float* w, const float* x) {
  double rounding = 0;
  for (int b = 0; matrix.input() == Input::kInt8OrBytes && b < matrix.cols; b += kBlock) {
    float most = 0;
    double size = 0;
    for (int i = b; i < std::min(b + kBlock, matrix.cols); ++i) {
      most = std::max(most, std::fabs(w[i]));
      size += std::fabs(x[i]);
    }
    rounding += most / 127 * size;
  }
  return bound(sum) + rounding;
}

TEST_P(LinearTest, RowsTimesOneToken) {
  Random random(11);
  for (const DType type : kTypes) {
    for (const int cols : kCols) {
      if (!has_whole_blocks(type, cols)) continue;
      const OwnedTensor w("w", type, {23, cols}, random, 0.05f);
      const std::vector<float> decoded = w.decoded();
      const Matrix matrix(k(), w.tensor);
      const Inputs x(k(), matrix.linear, 1, false, random);
      for (const int first : {0, matrix.some_row()}) {
        for (int count = 1; first + count <= 23; ++count) {
          std::vector<float> out(static_cast<size_t>(count) + 1, 77.0f);
          gemv_rows(k(), matrix.linear, first, count, x.rows.data(), 1, out.data(), 0, matrix.scratch);
          for (int r = 0; r < count; ++r) {
            const Sum expected = product(decoded.data() + (first + r) * cols, x.exact.data(), cols);
            ASSERT_NEAR(out[static_cast<size_t>(r)], expected.value, bound(expected))
                << name_of(type) << " cols " << cols << " row " << first + r << " of " << count;
          }
          ASSERT_EQ(out.back(), 77.0f) << "wrote past the last row";
        }
      }
    }
  }
}

TEST_P(LinearTest, TilesTimesManyTokens) {
  Random random(12);
  for (const DType type : kTypes) {
    for (const int cols : kCols) {
      if (!has_whole_blocks(type, cols)) continue;
      for (const int rows : {5, 32}) {
        OwnedTensor w("w", type, {rows + 16, cols}, random, 0.05f);
        const std::vector<float> decoded = w.decoded();
        Matrix matrix(k(), w.tensor);
        const int first = matrix.some_row();
        const std::vector<float> bias = random.bells(static_cast<size_t>(rows + 16));
        matrix.linear.bias = bias.data();
        const int tokens = 1 + random.below(70);
        const Inputs x(k(), matrix.linear, tokens, true, random);
        std::vector<float> c(static_cast<size_t>(tokens) * kTileRows + 1, 77.0f);
        gemm_tiles(k(), matrix.linear, first, rows, x.rows.data(), tokens, c.data(), matrix.scratch);
        for (int t = 0; t < tokens; ++t) {
          for (int r = 0; r < rows; ++r) {
            const float* row = decoded.data() + (first + r) * cols;
            const float* token = x.exact.data() + t * cols;
            const Sum expected = product(row, token, cols);
            ASSERT_NEAR(c[static_cast<size_t>(t * kTileRows + r)],
                        expected.value + bias[static_cast<size_t>(first + r)],
                        bound_of_gemm(matrix.linear, expected, row, token) + 1e-6)
                << name_of(type) << " cols " << cols << " rows " << rows << " tokens " << tokens << " at " << t << ","
                << r;
          }
        }
        ASSERT_EQ(c.back(), 77.0f) << "wrote past the last token";
      }
    }
  }
}

TEST_P(LinearTest, APackedRowIsTheRowThatWasPacked) {
  Random random(17);
  for (const DType type : kCodeTypes) {
    for (const int cols : kCols) {
      if (!has_whole_blocks(type, cols)) continue;
      const OwnedTensor w("w", type, {37, cols}, random, 0.05f);
      const std::vector<float> decoded = w.decoded();
      const Matrix matrix(k(), w.tensor);
      if (!matrix.linear.packed) continue;
      for (int r = 0; r < 37; ++r) {
        std::vector<float> row(static_cast<size_t>(cols) + 1, 77.0f);
        const std::byte* strip = matrix.linear.data + static_cast<size_t>(r / kStripRows) * matrix.linear.stride;
        matrix.linear.format->packing->row(strip, r % kStripRows, cols, row.data());
        for (int i = 0; i < cols; ++i) {
          ASSERT_EQ(row[static_cast<size_t>(i)], decoded[static_cast<size_t>(r * cols + i)])
              << name_of(type) << " cols " << cols << " row " << r << " column " << i;
        }
        ASSERT_EQ(row.back(), 77.0f) << "wrote past the last column";
      }
    }
  }
}

TEST_P(LinearTest, ARowsResultDoesNotDependOnItsNeighbours) {
  Random random(13);
  for (const DType type : kTypes) {
    const int cols = has_whole_blocks(type, 1152) ? 1152 : 1280;
    const OwnedTensor w("w", type, {9, cols}, random, 0.05f);
    const Matrix matrix(k(), w.tensor);
    const Inputs x(k(), matrix.linear, 1, false, random);
    float together[9], alone;
    gemv_rows(k(), matrix.linear, 0, 9, x.rows.data(), 1, together, 0, matrix.scratch);
    for (int r = 0; r < 9; r += matrix.linear.packed ? kStripRows : 1) {
      gemv_rows(k(), matrix.linear, r, 1, x.rows.data(), 1, &alone, 0, matrix.scratch);
      EXPECT_EQ(alone, together[r]) << name_of(type) << " row " << r;
    }
  }
}

// What lets one token be checked against a whole prompt, and speculation against plain decode.
TEST_P(LinearTest, AnyNumberOfTokensGivesTheSameBits) {
  Random random(16);
  for (const DType type : kTypes) {
    for (const int cols : {160, 1024, 1152, 1184}) {
      if (!has_whole_blocks(type, cols)) continue;
      const OwnedTensor w("w", type, {37, cols}, random, 0.05f);
      const Matrix matrix(k(), w.tensor);
      const Inputs x(k(), matrix.linear, 13, false, random);
      const bool same_input = batch_invariant(matrix.linear.input());
      std::vector<float> one(37), few(kMaxGemvTokens * 40), many(2 * 13 * kTileRows);
      if (same_input) gemm_tiles(k(), matrix.linear, 0, 37, x.rows.data(), 13, many.data(), matrix.scratch);
      for (int tokens = 1; tokens <= kMaxGemvTokens; ++tokens) {
        gemv_rows(k(), matrix.linear, 0, 37, x.rows.data(), tokens, few.data(), 40, matrix.scratch);
        for (int t = 0; t < tokens; ++t) {
          gemv_rows(k(), matrix.linear, 0, 37, x.rows.data() + t, 1, one.data(), 0, matrix.scratch);
          for (int r = 0; r < 37; ++r) {
            const size_t row = static_cast<size_t>(r), token = static_cast<size_t>(t);
            ASSERT_EQ(one[row], few[token * 40 + row]) << name_of(type) << " " << cols << " of " << tokens;
            if (!same_input) continue;
            const size_t at = (row / kTileRows * 13 + token) * kTileRows + row % kTileRows;
            ASSERT_EQ(one[row], many[at]) << name_of(type) << " " << cols;
          }
        }
      }
    }
  }
}

#if defined(__x86_64__)
const Kernels* kernels_named(const std::string& name) {
  for (const Kernels* kernels : available_kernels()) {
    if (name == kernels->name) return kernels;
  }
  return nullptr;
}

using Gemv = decltype(Packing::gemv);
template <FormatId... F>
Gemv gemv_of(const Kernels& kernels, const Format* format, bool two) {
  Gemv found = nullptr;
  ((format == &kernels.formats[F] ? found = two ? avx512::gemv_codes<F, avx512::PrefetchTwoStrips>
                                                : avx512::gemv_codes<F, avx512::PrefetchOneStrip>
                                  : found),
   ...);
  return found;
}

TEST(Linear, BothWaysToFetchWeightsGiveTheSameBits) {
  const Kernels* k = kernels_named("avx512");
  if (!k) GTEST_SKIP() << "this machine has no AVX-512";
  Random random(18);
  const auto way = [&](DType type, bool two) {
    using One = avx512::PrefetchOneStrip;
    using Two = avx512::PrefetchTwoStrips;
    if (type == DType::kQ4_K) return two ? avx512::gemv_q4_k<Two> : avx512::gemv_q4_k<One>;
    if (type == DType::kQ6_K) return two ? avx512::gemv_q6_k<Two> : avx512::gemv_q6_k<One>;
    return gemv_of<kFormatQ4_0, kFormatQ4_1, kFormatQ5_0, kFormatQ5_1, kFormatQ2_K, kFormatQ3_K, kFormatQ5_K,
                   kFormatIQ4_NL, kFormatIQ4_XS>(*k, format_of(*k, type), two);
  };
  for (const DType type : kCodeTypes) {
    const Gemv one = way(type, false), two = way(type, true);
    for (const int cols : {32, 288, 1152, 1280}) {
      if (!has_whole_blocks(type, cols)) continue;
      const OwnedTensor w("w", type, {80, cols}, random, 0.05f);
      const Matrix matrix(*k, w.tensor);
      const Inputs x(*k, matrix.linear, kMaxGemvTokens, false, random);
      for (const int rows : {1, 16, 17, 32, 47, 80}) {
        for (const int tokens : {1, 2, kMaxGemvTokens}) {
          std::vector<float> a(kMaxGemvTokens * 80 + 1, 77.0f), b = a;
          one(matrix.linear.data, rows, cols, x.rows.data(), tokens, a.data(), 80, nullptr);
          two(matrix.linear.data, rows, cols, x.rows.data(), tokens, b.data(), 80, w.tensor.bytes.data());
          ASSERT_EQ(a, b) << name_of(type) << " cols " << cols << " rows " << rows << " tokens " << tokens;
          ASSERT_NE(a[static_cast<size_t>(rows - 1)], 77.0f);
        }
      }
    }
  }
}

TEST(Linear, TilesOfAmxGiveTheBitsOfAvx512) {
  const Kernels *avx512 = kernels_named("avx512"), *amx = kernels_named("amx");
  if (!amx) GTEST_SKIP() << "this machine has no AMX";
  Random random(19);
  for (const DType type : kCodeTypes) {
    for (const int cols : {32, 288, 1152, 1280}) {
      if (!has_whole_blocks(type, cols)) continue;
      const OwnedTensor w("w", type, {64, cols}, random, 0.05f);
      const Matrix one(*avx512, w.tensor), other(*amx, w.tensor);
      const Inputs x(*avx512, one.linear, 100, true, random);
      for (const int tokens : {1, 9, 16, 17, 32, 33, 48, 49, 100}) {
        std::vector<float> a(static_cast<size_t>(tokens) * 64), b = a;
        gemm_tiles(*avx512, one.linear, 0, 64, x.rows.data(), tokens, a.data(), one.scratch);
        gemm_tiles(*amx, other.linear, 0, 64, x.rows.data(), tokens, b.data(), other.scratch);
        ASSERT_EQ(a, b) << name_of(type) << " cols " << cols << " tokens " << tokens;
      }
    }
  }
}
#endif

// The largest quants and activations there are: nothing may overflow or saturate on the way.
TEST_P(LinearTest, ExtremeQuantsDoNotOverflow) {
  Random random(14);
  std::vector<std::pair<DType, int>> fills = {{DType::kQ8_0, 0x80}, {DType::kMXFP4, 0xff}};  // −128 and −12
  for (const DType type : kCodeTypes) fills.insert(fills.end(), {{type, 0x00}, {type, 0xff}});
  for (const auto& [type, fill] : fills) {
    OwnedTensor w("w", type, {8, 512}, random, 0.05f);
    const size_t block = static_cast<size_t>(info(type).block_bytes);
    std::vector<size_t> halves = halves_of(type);  // keep their values, as MXFP4's exponent does; minima become zero,
                                                   // so that the largest weights are those that scales allow
    if (type == DType::kQ4_K) halves = {0, 2};
    if (type == DType::kQ6_K) halves = {208};
    if (type == DType::kQ8_0 || type == DType::kQ4_0 || type == DType::kQ5_0) halves = {0};
    for (size_t b = 0; b < w.bytes.size(); b += block) {
      const std::vector<std::byte> before(w.bytes.begin() + static_cast<ptrdiff_t>(b),
                                          w.bytes.begin() + static_cast<ptrdiff_t>(b + block));
      std::memset(w.bytes.data() + b, fill, block);
      for (const size_t half : halves) std::memset(w.bytes.data() + b + half, 0, 2);
      for (size_t i = 0; i < std::min<size_t>(halves.size(), 1); ++i)
        std::memcpy(w.bytes.data() + b + halves[i], before.data() + halves[i], 2);
      if (type == DType::kMXFP4) w.bytes[b] = before[0];
    }
    const std::vector<float> decoded = w.decoded();
    const Matrix matrix(k(), w.tensor);
    for (const float sign : {1.0f, -1.0f}) {
      std::vector<float> x(512, sign);
      const Memory blocks(input_row_bytes(matrix.linear.input(), 512), "test");
      const Memory wide(input_row_bytes(matrix.linear.input(), 512), "test");
      quantize_input(k(), matrix.linear.input(), false, x.data(), 512, blocks.data());
      quantize_input(k(), matrix.linear.input(), true, x.data(), 512, wide.data());
      float out[8];
      std::vector<float> c(9 * kTileRows);
      const std::vector<const void*> few(1, blocks.data()), many(9, wide.data());
      gemv_rows(k(), matrix.linear, 0, 8, few.data(), 1, out, 0, matrix.scratch);
      gemm_tiles(k(), matrix.linear, 0, 8, many.data(), 9, c.data(), matrix.scratch);
      for (int r = 0; r < 8; ++r) {
        const Sum expected = product(decoded.data() + r * 512, x.data(), 512);
        EXPECT_NEAR(out[r], expected.value, 1e-5 * expected.size) << name_of(type) << " of " << fill;
        for (int t = 0; t < 9; ++t)
          EXPECT_NEAR(
              c[static_cast<size_t>(t * kTileRows + r)], expected.value,
              1e-5 * expected.size + bound_of_gemm(matrix.linear, expected, decoded.data() + r * 512, x.data()));
      }
    }
  }
}

TEST(Linear, TooFewBytesAreRefusedWithTheNumbers) {
  Random random(15);
  OwnedTensor w("model.w", DType::kQ4_K, {4, 300}, random, 0.05f);
  w.tensor.bytes = w.tensor.bytes.first(w.tensor.bytes.size() - 1);
  EXPECT_ANY_THROW(make_linear(kPortableKernels, w.tensor));
}

std::string isa_name(const ::testing::TestParamInfo<const Kernels*>& info) { return info.param->name; }
INSTANTIATE_TEST_SUITE_P(Isa, LinearTest, ::testing::ValuesIn(available_kernels()), isa_name);

}  // namespace
}  // namespace doppler::cpu
