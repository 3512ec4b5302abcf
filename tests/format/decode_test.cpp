#include "format/decode.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "base/half.h"
#include "format/iq_tables.h"
#include "support/golden_quants.h"

namespace doppler {
namespace {

using test::golden_quants;

const std::byte* as_bytes(const std::vector<uint8_t>& v) { return reinterpret_cast<const std::byte*>(v.data()); }

bool same_bits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

// "KIND.TYPE.bytes" for every golden matrix
struct Golden {
  std::string kind, type;
};
std::vector<Golden> all_golden() {
  std::vector<Golden> found;
  for (const auto& [name, tensor] : golden_quants().tensors) {
    const size_t first = name.find('.'), last = name.rfind('.');
    if (name.substr(last) == ".bytes")
      found.push_back({name.substr(0, first), name.substr(first + 1, last - first - 1)});
  }
  return found;
}

TEST(Decode, AgreesWithGgmlBitForBitOnEveryTypeAndKind) {
  constexpr size_t kKeptRows[] = {0, 11, 22, 31};  // of the 32-row matrices; see tests/data/quants/README.md
  std::set<DType> seen;
  for (const Golden& g : all_golden()) {
    const std::string name = g.kind + "." + g.type;
    DType type = DType::kF32;
    ASSERT_TRUE(dtype_from_name(g.type, type)) << name;
    seen.insert(type);
    const test::TestTensor& stored = golden_quants().tensors.at(name + ".bytes");
    const test::TestTensor& expected = golden_quants().tensors.at(name + ".decoded");
    const std::vector<float> want = expected.floats();
    const size_t cols = expected.shape[1], rows = expected.shape[0];
    ASSERT_EQ(stored.shape[1], row_bytes(type, cols)) << name;
    std::vector<float> got(cols);
    for (size_t r = 0; r < rows; ++r) {
      const size_t row = stored.shape[0] == rows ? r : kKeptRows[r];
      decode_row(type, as_bytes(stored.bytes) + row * stored.shape[1], got.data(), cols);
      for (size_t c = 0; c < cols; ++c) {
        ASSERT_TRUE(same_bits(got[c], want[r * cols + c]))
            << name << " row " << row << " column " << c << ": " << got[c] << " instead of " << want[r * cols + c];
      }
    }
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(kDTypeCount) - 3) << "every type but the plain floats has golden data";
}

TEST(Decode, ReproducesTheErrorThatGgmlReports) {
  for (const Golden& g : all_golden()) {
    if (g.kind == "gauss8") continue;  // its source is not kept
    DType type = DType::kF32;
    ASSERT_TRUE(dtype_from_name(g.type, type));
    const auto& tensors = golden_quants().tensors;
    const std::vector<float> source = tensors.at(g.kind + ".source").floats();
    const std::vector<float> decoded = test::decode_matrix(
        type, as_bytes(tensors.at(g.kind + "." + g.type + ".bytes").bytes), test::kGoldenRows, test::kGoldenCols);
    EXPECT_NEAR(test::relative_rms(source, decoded), test::golden_error(g.kind, g.type), 6e-7) << g.kind << g.type;
  }
}

// Every type, from random bytes: a row that ends inside a block gives the same weights as the longer row, and writes
// nothing behind its end.
TEST(Decode, ARowMayEndAnywhereInABlock) {
  std::mt19937 random(7);
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType type = static_cast<DType>(i);
    constexpr size_t kFull = 768;
    std::vector<uint8_t> bytes(row_bytes(type, kFull));
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
    std::vector<float> full(kFull);
    decode_row(type, as_bytes(bytes), full.data(), kFull);
    for (size_t cols : {size_t{0}, size_t{1}, size_t{15}, size_t{31}, size_t{32}, size_t{33}, size_t{255}, size_t{256},
                        size_t{257}, size_t{300}, size_t{512}, size_t{700}, size_t{767}}) {
      std::vector<float> part(cols + 64, 12345.0f);
      decode_row(type, as_bytes(bytes), part.data(), cols);
      for (size_t c = 0; c < cols; ++c) {
        ASSERT_TRUE(same_bits(part[c], full[c])) << name_of(type) << " " << cols << " at " << c;
      }
      for (size_t c = cols; c < part.size(); ++c) ASSERT_EQ(part[c], 12345.0f) << name_of(type) << " " << cols;
    }
  }
}

TEST(Decode, EveryHalfDecodesAsTheScalarConversionDoes) {
  std::vector<uint8_t> bytes(2 * 65536);
  for (uint32_t h = 0; h < 65536; ++h) {
    bytes[2 * h] = static_cast<uint8_t>(h);
    bytes[2 * h + 1] = static_cast<uint8_t>(h >> 8);
  }
  std::vector<float> out(65536);
  decode_row(DType::kF16, as_bytes(bytes), out.data(), out.size());
  for (uint32_t h = 0; h < 65536; ++h) {
    ASSERT_TRUE(same_bits(out[h], f16_to_f32(static_cast<uint16_t>(h)))) << std::hex << h;
  }
  decode_row(DType::kBF16, as_bytes(bytes), out.data(), out.size());
  for (uint32_t h = 0; h < 65536; ++h) {
    ASSERT_TRUE(same_bits(out[h], bf16_to_f32(static_cast<uint16_t>(h)))) << std::hex << h;
  }
}

TEST(Decode, UnalignedRowsAreRead) {
  const std::vector<float> values = {1.5f, -2.25f, 3e-30f};
  std::vector<uint8_t> bytes(1 + values.size() * 4);
  std::memcpy(bytes.data() + 1, values.data(), values.size() * 4);
  std::vector<float> out(values.size());
  decode_row(DType::kF32, as_bytes(bytes) + 1, out.data(), out.size());
  EXPECT_EQ(out, values);
}

// value = e2m1 · 2^(scale - 127), for every scale whose values are finite and every code
TEST(Decode, Mxfp4IsTheProductOfItsTwoFloats) {
  constexpr double kMagnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (int scale = 0; scale < 252; ++scale) {
    std::vector<uint8_t> block(17);
    block[0] = static_cast<uint8_t>(scale);
    for (int i = 0; i < 16; ++i) block[static_cast<size_t>(1 + i)] = static_cast<uint8_t>(i | (15 - i) << 4);
    float out[32];
    decode_row(DType::kMXFP4, as_bytes(block), out, 32);
    for (int i = 0; i < 32; ++i) {
      const int code = i < 16 ? i : 31 - i;
      const double want = (code & 8 ? -1 : 1) * kMagnitudes[code & 7] * std::ldexp(1.0, scale - 127);
      ASSERT_EQ(out[i], static_cast<float>(want)) << scale << " " << code;
    }
  }
}

template <size_t N, size_t Size>
void expect_distinct(const std::array<std::array<int8_t, N>, Size>& book) {
  const std::set<std::array<int8_t, N>> points(book.begin(), book.end());
  EXPECT_EQ(points.size(), Size);
}

TEST(Decode, CodeBooksAreFullOfDistinctPoints) {
  expect_distinct(iq_tables().iq2_xxs);
  expect_distinct(iq_tables().iq2_xs);
  expect_distinct(iq_tables().iq2_s);
  expect_distinct(iq_tables().iq1_s);
  expect_distinct(iq_tables().iq3_xxs);
  expect_distinct(iq_tables().iq3_s);
}

}  // namespace
}  // namespace doppler
