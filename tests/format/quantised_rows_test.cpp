// Whatever tensors a file puts together, a matrix is refused or decoded within them. The values are held by
// tests/cli/quantised_test.py.
#include "format/quantised_rows.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "base/half.h"

namespace doppler {
namespace {

TEST(QuantisedRows, SmallFloatsAreWhatTheirBitsSay) {
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    const double sign = code & 0x80 ? -1 : 1;
    const int e4 = code >> 3 & 15, m3 = code & 7;
    if ((code & 0x7f) == 0x7f)
      EXPECT_TRUE(std::isnan(decode_e4m3(byte)));
    else
      EXPECT_EQ(decode_e4m3(byte), sign * (e4 ? std::ldexp(8 + m3, e4 - 10) : std::ldexp(m3, -9))) << code;
    const int e5 = code >> 2 & 31, m2 = code & 3;
    if (e5 == 31)
      EXPECT_FALSE(std::isfinite(decode_e5m2(byte)));
    else
      EXPECT_EQ(decode_e5m2(byte), sign * (e5 ? std::ldexp(4 + m2, e5 - 17) : std::ldexp(m2, -16))) << code;
    if (code == 255)
      EXPECT_TRUE(std::isnan(decode_e8m0(byte)));
    else
      EXPECT_EQ(decode_e8m0(byte), std::ldexp(1.0, code - 127)) << code;
  }
}

template <class T>
RawTensor of(const char* dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
  return {"t", dtype, std::move(shape), std::as_bytes(std::span(values)), {}};
}

// Experts that lie in one tensor: blocks of scales begin anew in each, and each may have a factor of its own.
TEST(QuantisedRows, StackedMatricesHaveScalesOfTheirOwn) {
  const std::vector<uint8_t> ones(2 * 3 * 4, 0x38);
  const std::vector<float> scales{1, 2, 3, 4, 5, 6, 7, 8};  // [2 matrices, 2 blocks of rows, 2 of columns]
  const RawTensor codes = of("F8_E4M3", {2, 3, 4}, ones), grid = of("F32", {2, 2, 2}, scales);
  const QuantisedMatrix blocks = scaled_codes(codes, grid, nullptr, {.blocks = {{2, 3}}});
  ASSERT_TRUE(blocks.rows) << blocks.fault;
  const float expected[6][2] = {{1, 2}, {1, 2}, {3, 4}, {5, 6}, {5, 6}, {7, 8}};  // columns 0 to 2, and 3
  for (int64_t row = 0; row < 6; ++row) {
    float out[4];
    blocks.rows->decode(row, out);
    EXPECT_EQ(std::vector(out, out + 4),
              (std::vector{expected[row][0], expected[row][0], expected[row][0], expected[row][1]}));
  }
  const std::vector<float> two{3, 5};
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2}, {2, 1, 1}}) {
    const RawTensor each = of("F32", shape, two);
    const QuantisedMatrix whole = scaled_codes(codes, each, nullptr, {});
    ASSERT_TRUE(whole.rows) << whole.fault;
    float out[4];
    whole.rows->decode(2, out);
    EXPECT_EQ(out[3], 3);
    whole.rows->decode(3, out);
    EXPECT_EQ(out[0], 5);
  }
  const std::vector<uint8_t> pairs(2 * 2 * 8, 0x42), steps(2 * 2, 0x38);  // codes 1 and 2, scales of one
  const std::vector<float> factors{10, 100};
  const RawTensor packed = of("U8", {2, 2, 8}, pairs), scale = of("F8_E4M3", {2, 2, 1}, steps);
  const RawTensor factor = of("F32", {2}, factors);
  const QuantisedMatrix nvfp4 = paired_codes(packed, scale, &factor, false);
  ASSERT_TRUE(nvfp4.rows) << nvfp4.fault;
  for (int64_t row = 0; row < 4; ++row) {
    float out[16];
    nvfp4.rows->decode(row, out);
    EXPECT_EQ(out[0], row < 2 ? 10 : 100) << "code 2 is one";
    EXPECT_EQ(out[15], row < 2 ? 20 : 200) << "code 4 is two";
  }
}

// Tensors of few dtypes and small shapes, each in memory of exactly its size.
class AnyTensors {
 public:
  explicit AnyTensors(unsigned seed) : random_(seed) {}
  int64_t any(std::initializer_list<int64_t> of) {
    return of.begin()[std::uniform_int_distribution<size_t>(0, of.size() - 1)(random_)];
  }
  // One time in eight a dimension is another one, is missing, or is one too many.
  RawTensor& tensor(std::initializer_list<const char*> dtypes, std::vector<int64_t> shape) {
    auto& raw = *tensors_.emplace_back(std::make_unique<RawTensor>());
    raw.name = "t";
    raw.dtype = dtypes.begin()[std::uniform_int_distribution<size_t>(0, dtypes.size() - 1)(random_)];
    if (any({0, 1, 2, 3, 4, 5, 6, 7}) == 0) {
      const int64_t other = any({0, 1, 2, 3, 4, 8, 16, 32, 64});
      if (shape.empty() || any({0, 1, 2}) == 0)
        shape.push_back(other);
      else if (any({0, 1}) == 0)
        shape.pop_back();
      else
        shape[static_cast<size_t>(any({0, 1})) % shape.size()] = other;
    }
    raw.shape = shape;
    uint64_t size = safetensors_element_bytes(raw.dtype);
    for (const int64_t n : shape) size *= static_cast<uint64_t>(n);
    auto& bytes = *bytes_.emplace_back(std::make_unique<std::vector<std::byte>>(size));
    const bool small = any({0, 1}) == 0;  // so that what is an index often is one
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = std::byte(small ? (i % 4 ? 0 : random_() % 2) : random_() % 256);
    raw.bytes = bytes;
    return raw;
  }
  const RawTensor* maybe(std::initializer_list<const char*> dtypes, std::vector<int64_t> shape) {
    return any({0, 1}) ? &tensor(dtypes, std::move(shape)) : nullptr;
  }
  QuantisedLayout layout() {
    QuantisedLayout out;
    out.group_sizes.insert(any({-1, 0, 1, 8, 8, 8, 32, INT64_MAX}));
    if (any({0, 1})) out.blocks.insert({any({-1, 0, 3, 8, INT64_MAX}), any({0, 5, 8})});
    out.zeros_less_one = any({0, 1}) == 1;
    out.symmetric = any({0, 1}) == 1;
    return out;
  }
  const RawTensor& holding(const char* dtype, std::string_view content) {
    auto& raw = *tensors_.emplace_back(std::make_unique<RawTensor>());
    auto& bytes = *bytes_.emplace_back(std::make_unique<std::vector<std::byte>>(content.size()));
    std::memcpy(bytes.data(), content.data(), content.size());
    raw.dtype = dtype;
    raw.bytes = bytes;
    return raw;
  }
  uint64_t stored() const {
    uint64_t bytes = 0;
    for (const auto& part : bytes_) bytes += part->size();
    return bytes;
  }

 private:
  std::mt19937 random_;
  std::vector<std::unique_ptr<RawTensor>> tensors_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> bytes_;
};

// Of many random groups of tensors: the accepted ones decode. Returns how many those are. Reads beyond a tensor are
// seen by the sanitizer that ./test --sanitize runs this under.
int accepted(const std::function<QuantisedMatrix(AnyTensors&)>& make, unsigned groups) {
  int count = 0;
  for (unsigned seed = 0; seed < groups; ++seed) {
    AnyTensors tensors(seed);
    const QuantisedMatrix matrix = make(tensors);
    EXPECT_NE(matrix.rows == nullptr, matrix.fault.empty());
    if (!matrix.rows) continue;
    ++count;
    int64_t rows = 1;
    for (const int64_t n : matrix.shape) rows *= n;
    EXPECT_LE(static_cast<uint64_t>(rows), 16 * tensors.stored()) << "two bits are the least a weight takes";
    const int64_t cols = matrix.shape.back();
    rows /= cols;
    for (const int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
      std::vector<float> out(static_cast<size_t>(cols) + 1, -1e30f);
      matrix.rows->decode(row, out.data());
      EXPECT_EQ(out.back(), -1e30f);
      EXPECT_EQ(std::count(out.begin(), out.end(), -1e30f), 1) << "every column is written";
    }
  }
  return count;
}

constexpr unsigned kGroups = 4000;
constexpr int kEnough = kGroups / 50;  // of a generator that hits what is accepted

TEST(QuantisedRows, AnyScaledCodesAreRefusedOrDecodedWithinTheirBytes) {
  const auto make = [](AnyTensors& any) {
    const int64_t rows = any.any({1, 3, 16}), cols = any.any({1, 8, 24}), experts = any.any({1, 2});
    const int64_t high = any.any({1, rows, (rows + 2) / 3}), wide = any.any({1, (cols + 7) / 8, (cols + 4) / 5});
    const bool stacked = any.any({0, 1, 2}) == 0;
    const std::vector<int64_t> matrix = stacked ? std::vector{experts, rows, cols} : std::vector{rows, cols};
    const std::vector<int64_t> grid = stacked ? std::vector{experts, high, wide} : std::vector{high, wide};
    const RawTensor& codes = any.tensor({"F8_E4M3", "F8_E5M2", "I8"}, matrix);
    const RawTensor& scales = any.tensor({"F32", "BF16", "F16", "U8"}, grid);
    return scaled_codes(codes, scales, any.maybe({"I8"}, grid), any.layout());
  };
  EXPECT_GT(accepted(make, kGroups), kEnough);
}

TEST(QuantisedRows, AnyPairedCodesAreRefusedOrDecodedWithinTheirBytes) {
  const auto make = [](AnyTensors& any) {
    const int64_t rows = any.any({1, 3, 16}), pairs = any.any({1, 8, 16, 20});
    const bool nvidia = any.any({0, 1}) == 1;
    const RawTensor& codes = any.tensor({"U8"}, {rows, pairs});
    const RawTensor& scales =
        any.tensor({nvidia ? "F8_E4M3" : "U8"}, {rows, nvidia ? (pairs + 7) / 8 : (pairs + 15) / 16});
    return paired_codes(codes, scales, nvidia ? &any.tensor({"F32"}, {1}) : nullptr, any.any({0, 1}) == 1);
  };
  EXPECT_GT(accepted(make, kGroups), kEnough);
}

TEST(QuantisedRows, AnyPackedRowsAreRefusedOrDecodedWithinTheirBytes) {
  const auto make = [](AnyTensors& any) {
    const int64_t shape[2] = {any.any({1, 3, 16}), any.any({-1, 0, 8, 9, 64, INT64_MAX})};
    const int64_t bits = any.any({2, 4, 8}), each = 32 / bits,
                  cols = shape[1] == INT64_MAX ? 64 : std::max(shape[1], int64_t{1});
    const int64_t groups = (cols + 7) / 8;
    const RawTensor& words = any.tensor({"I32"}, {shape[0], (cols + each - 1) / each});
    const RawTensor& scales = any.tensor({"F32", "BF16"}, {shape[0], groups});
    const RawTensor& described = any.holding("I64", {reinterpret_cast<const char*>(shape), sizeof shape});
    return packed_rows(words, scales, described, any.maybe({"I32"}, {(shape[0] + each - 1) / each, groups}),
                       any.maybe({"I32"}, {cols}), any.layout());
  };
  EXPECT_GT(accepted(make, kGroups), kEnough);
}

TEST(QuantisedRows, AnyPackedColumnsAreRefusedOrDecodedWithinTheirBytes) {
  const auto make = [](AnyTensors& any) {
    const bool awq = any.any({0, 1}) == 1;
    const int64_t bits = awq ? 4 : any.any({2, 3, 4, 8}), rows = any.any({8, 16, 32}), cols = any.any({32, 64});
    const RawTensor& words =
        awq ? any.tensor({"I32"}, {cols, rows / 8}) : any.tensor({"I32"}, {cols * bits / 32, rows});
    const RawTensor& scales = any.tensor({"F16", "F32"}, {cols / 8, rows});
    const RawTensor& zeros = any.tensor({"I32"}, {cols / 8, rows * bits / 32});
    return packed_columns(words, scales, zeros, any.maybe({"I32"}, {cols}), any.layout());
  };
  EXPECT_GT(accepted(make, kGroups), kEnough);
}

TEST(QuantisedRows, AnyTableCodesAreRefusedOrDecodedWithinTheirBytes) {
  const auto make = [](AnyTensors& any) {
    const int64_t rows = any.any({1, 3, 8}), cols = any.any({2, 9, 16}), block = any.any({1, 8, 64}),
                  nested = any.any({1, 4});
    const int64_t blocks = (rows * cols + block - 1) / block;
    const bool twice = any.any({0, 1}) == 1;
    BlockTable table;
    table.codes = &any.tensor({"U8"}, {(rows * cols + 1) / 2, 1});
    table.largest = &any.tensor({twice ? "U8" : "F32"}, {blocks});
    table.table = &any.tensor({"F32"}, {16});
    if (twice) table.nested_largest = &any.tensor({"F32"}, {(blocks + nested - 1) / nested});
    if (twice) table.nested_table = &any.tensor({"F32"}, {256});
    table.state =
        &any.holding("U8", fmt::format(R"({{"shape":[{},{}],"blocksize":{},"nested_blocksize":{},"nested_offset":0}})",
                                       rows, cols, block, nested));
    return table_codes(table);
  };
  EXPECT_GT(accepted(make, kGroups), kEnough);
}

}  // namespace
}  // namespace doppler
