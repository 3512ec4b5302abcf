#include "format/dtype.h"

#include <array>
#include <limits>

#include "base/error.h"

namespace doppler {
namespace {

// In the order of DType. Blocks are ggml's: K and IQ types gather 256 weights, the others 32.
constexpr std::array<DTypeInfo, kDTypeCount> kTable = {{
    {"F32", 1, 4},        {"F16", 1, 2},       {"BF16", 1, 2},     {"Q8_0", 32, 34},     {"Q4_0", 32, 18},
    {"Q4_1", 32, 20},     {"Q5_0", 32, 22},    {"Q5_1", 32, 24},   {"Q2_K", 256, 84},    {"Q3_K", 256, 110},
    {"Q4_K", 256, 144},   {"Q5_K", 256, 176},  {"Q6_K", 256, 210}, {"IQ4_NL", 32, 18},   {"IQ4_XS", 256, 136},
    {"IQ2_XXS", 256, 66}, {"IQ2_XS", 256, 74}, {"IQ2_S", 256, 82}, {"IQ3_XXS", 256, 98}, {"IQ3_S", 256, 110},
    {"IQ1_S", 256, 50},   {"MXFP4", 32, 17},
}};

constexpr char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (upper(a[i]) != upper(b[i])) return false;
  }
  return true;
}

}  // namespace

const DTypeInfo& info(DType type) {
  const size_t index = static_cast<size_t>(type);
  if (index >= kTable.size()) {
    fail({.code = ErrorCode::kInternal,
          .what = "a number format that does not exist",
          .where = "dtype",
          .got = std::to_string(index)});
  }
  return kTable[index];
}

bool dtype_from_name(std::string_view name, DType& out) {
  if (equal_ignoring_case(name, "Q4_K_M")) name = "Q4_K";  // a mixture's name, given to its tensors in artefacts
  for (size_t i = 0; i < kTable.size(); ++i) {
    if (equal_ignoring_case(name, kTable[i].name)) {
      out = static_cast<DType>(i);
      return true;
    }
  }
  return false;
}

size_t row_bytes(DType type, size_t cols) {
  const DTypeInfo& t = info(type);
  const size_t weights = static_cast<size_t>(t.block_weights), bytes = static_cast<size_t>(t.block_bytes);
  const size_t blocks = cols / weights + (cols % weights != 0 ? 1 : 0);
  if (blocks > std::numeric_limits<size_t>::max() / bytes) {
    fail({.code = ErrorCode::kFormat,
          .what = "a row of weights is longer than memory can hold",
          .where = std::string(t.name),
          .got = std::to_string(cols) + " columns"});
  }
  return blocks * bytes;
}

}  // namespace doppler
