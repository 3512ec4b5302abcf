#include "format/quantised_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "base/half.h"
#include "base/json.h"
#include "format/decode_blocks.h"

namespace doppler {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::array<float, 16> kE2m1 = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};

int64_t ceil_div(int64_t n, int64_t unit) { return n / unit + (n % unit != 0); }

std::string text_of(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }
std::string text_of(const RawTensor& raw) { return fmt::format("{} {} {}", raw.name, raw.dtype, text_of(raw.shape)); }

QuantisedMatrix refused(std::string fault) { return {.fault = std::move(fault)}; }

int64_t count_of(const RawTensor& raw) {
  const size_t element = safetensors_element_bytes(raw.dtype);
  return element ? static_cast<int64_t>(raw.bytes.size() / element) : 0;
}

const uint8_t* bytes_of(const RawTensor& raw) { return reinterpret_cast<const uint8_t*>(raw.bytes.data()); }
uint32_t word_at(const RawTensor& raw, int64_t i) { return load_u32(bytes_of(raw) + 4 * static_cast<size_t>(i)); }
float f32_at(const RawTensor& raw, int64_t i) { return std::bit_cast<float>(word_at(raw, i)); }

const std::array<float, 256>& e4m3_table() {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values{};
    for (size_t code = 0; code < 256; ++code) values[code] = decode_e4m3(static_cast<uint8_t>(code));
    return values;
  }();
  return table;
}

// A tensor of numbers as f32, whatever they are stored as.
class Numbers {
 public:
  explicit Numbers(const RawTensor& raw) : bytes_(bytes_of(raw)) {
    if (raw.dtype == "F32") type_ = kF32;
    if (raw.dtype == "F16") type_ = kF16;
    if (raw.dtype == "BF16") type_ = kBF16;
    if (raw.dtype == "F8_E4M3") type_ = kE4m3;
    if (raw.dtype == "F8_E8M0" || raw.dtype == "U8") type_ = kE8m0;
  }
  bool valid() const { return type_ != kNone; }
  bool is_e8m0() const { return type_ == kE8m0; }
  bool is_e4m3() const { return type_ == kE4m3; }
  float operator[](int64_t index) const {
    const auto i = static_cast<size_t>(index);
    switch (type_) {
      case kF32: return std::bit_cast<float>(load_u32(bytes_ + 4 * i));
      case kF16: return load_f16(bytes_ + 2 * i);
      case kBF16: return bf16_to_f32(load_u16(bytes_ + 2 * i));
      case kE4m3: return e4m3_table()[bytes_[i]];
      case kE8m0: return decode_e8m0(bytes_[i]);
      case kNone: break;
    }
    return kNaN;
  }

 private:
  const uint8_t* bytes_;
  enum : uint8_t { kNone, kF32, kF16, kBF16, kE4m3, kE8m0 } type_ = kNone;
};

// [rows, cols], or [matrices, rows, cols].
struct Extent {
  int64_t matrices = 1, rows = 0, cols = 0;
  bool stacked = false;
};

bool extent_of(const std::vector<int64_t>& shape, Extent& out) {
  if (shape.size() < 2 || shape.size() > 3 || std::count(shape.begin(), shape.end(), 0) > 0) return false;
  out = {shape.size() == 3 ? shape[0] : 1, shape[shape.size() - 2], shape.back(), shape.size() == 3};
  return true;
}

// Which scale belongs to a weight.
struct Grid {
  int64_t block_rows = 1, block_cols = 1, rows = 1, cols = 1, matrix_rows = 1;
  bool one = false;  // for all matrices
  int64_t first_of(int64_t row) const {
    return one ? 0 : (row / matrix_rows * rows + row % matrix_rows / block_rows) * cols;
  }
};

// How a tensor of this shape covers the matrix; says in `fault` why it does not, or that two ways are possible.
bool find_grid(const RawTensor& scales, const Extent& extent, const QuantisedLayout& layout, Grid& grid,
               std::string& fault) {
  std::vector<int64_t> shape = scales.shape;
  grid = {extent.rows, extent.cols, 1, 1, extent.rows, true};
  if (count_of(scales) == 1) return true;
  grid.one = false;
  if (extent.stacked && !shape.empty() && shape[0] == extent.matrices)
    shape.erase(shape.begin());
  else if (extent.stacked)
    shape = {0, 0};
  if (shape.size() < 2) shape.insert(shape.end(), 2 - shape.size(), 1);
  std::set<std::pair<int64_t, int64_t>> ways;
  const auto try_way = [&](int64_t rows, int64_t cols) {
    if (rows < 1 || cols < 1 || ceil_div(extent.rows, rows) != shape[0] || ceil_div(extent.cols, cols) != shape[1])
      return;
    ways.insert({std::min(rows, extent.rows), std::min(cols, extent.cols)});
  };
  if (shape.size() == 2) {
    for (const auto& [rows, cols] : layout.blocks) try_way(rows, cols);
    for (const int64_t rows : {int64_t{1}, extent.rows}) {
      try_way(rows, extent.cols);
      for (const int64_t cols : layout.group_sizes) try_way(rows, cols);
    }
  }
  if (ways.size() != 1) {
    fault = fmt::format("{} {} a matrix of {} rows and {} columns", text_of(scales),
                        ways.empty() ? "does not fit" : "fits in more than one way", extent.rows, extent.cols);
    return false;
  }
  grid.block_rows = ways.begin()->first;
  grid.block_cols = ways.begin()->second;
  grid.rows = shape[0];
  grid.cols = shape[1];
  return true;
}

class ScaledCodes : public RowDecoder {
 public:
  ScaledCodes(const RawTensor& codes, const RawTensor& scales, const RawTensor* zeros, const Grid& grid, int64_t cols,
              float last_factor)
      : codes_(bytes_of(codes)),
        scales_(scales),
        zeros_(zeros ? bytes_of(*zeros) : nullptr),
        grid_(grid),
        cols_(cols),
        last_factor_(last_factor) {
    for (size_t i = 0; i < 256; ++i) {
      const auto code = static_cast<uint8_t>(i);
      levels_[i] = codes.dtype == "I8"        ? static_cast<float>(static_cast<int8_t>(code))
                   : codes.dtype == "F8_E5M2" ? decode_e5m2(code)
                                              : decode_e4m3(code);
    }
  }
  void decode(int64_t row, float* out) const override {
    const uint8_t* codes = codes_ + row * cols_;
    const int64_t first = grid_.first_of(row);
    for (int64_t block = 0; block < grid_.cols; ++block) {
      const float scale = scales_[first + block];
      const float zero = zeros_ ? static_cast<float>(static_cast<int8_t>(zeros_[first + block])) : 0;
      const int64_t end = std::min(cols_, (block + 1) * grid_.block_cols);
      for (int64_t c = block * grid_.block_cols; c < end; ++c) out[c] = (levels_[codes[c]] - zero) * scale;
    }
    if (last_factor_ == 1) return;
    for (int64_t c = 0; c < cols_; ++c) out[c] *= last_factor_;
  }

 private:
  const uint8_t* codes_;
  Numbers scales_;
  const uint8_t* zeros_;
  Grid grid_;
  int64_t cols_;
  float last_factor_;
  std::array<float, 256> levels_{};
};

class PairedCodes : public RowDecoder {
 public:
  PairedCodes(const RawTensor& codes, const RawTensor& scales, const RawTensor* global, bool divides,
              const Extent& extent, int64_t group)
      : codes_(bytes_of(codes)), scales_(scales), global_(global), divides_(divides), extent_(extent), group_(group) {}
  void decode(int64_t row, float* out) const override {
    const int64_t groups = ceil_div(extent_.cols, group_);
    const uint8_t* codes = codes_ + row * (extent_.cols / 2);
    const float global = global_ ? f32_at(*global_, count_of(*global_) == 1 ? 0 : row / extent_.rows) : 1;
    for (int64_t g = 0; g < groups; ++g) {
      float scale = scales_[row * groups + g];
      if (global_) scale = divides_ ? scale / global : scale * global;
      const int64_t end = std::min(extent_.cols, (g + 1) * group_);
      for (int64_t c = g * group_; c < end; ++c) out[c] = kE2m1[codes[c / 2] >> (c % 2 * 4) & 15] * scale;
    }
  }

 private:
  const uint8_t* codes_;
  Numbers scales_;
  const RawTensor* global_;
  bool divides_;
  Extent extent_;
  int64_t group_;
};

class PackedRows : public RowDecoder {
 public:
  PackedRows(const RawTensor& words, const RawTensor& scales, const RawTensor* zeros, const RawTensor* groups,
             const Grid& grid, int64_t cols, int bits)
      : words_(words), scales_(scales), zeros_(zeros), groups_(groups), grid_(grid), cols_(cols), bits_(bits) {}
  void decode(int64_t row, float* out) const override {
    const int64_t each = 32 / bits_, first = grid_.first_of(row), words = words_.shape[1];
    const int64_t line = grid_.cols > 0 ? first / grid_.cols : 0;
    const uint32_t mask = (1u << bits_) - 1;
    std::vector<float> scales(static_cast<size_t>(grid_.cols)),
        zeros(scales.size(), static_cast<float>(1u << (bits_ - 1)));
    for (int64_t g = 0; g < grid_.cols; ++g) {
      const auto i = static_cast<size_t>(g);
      scales[i] = scales_[first + g];
      if (zeros_)
        zeros[i] = static_cast<float>(word_at(*zeros_, line / each * grid_.cols + g) >> (line % each * bits_) & mask);
    }
    for (int64_t c = 0; c < cols_; ++c) {
      const auto g = static_cast<size_t>(groups_ ? word_at(*groups_, c) : c / grid_.block_cols);
      const uint32_t code = word_at(words_, row * words + c / each) >> (c % each * bits_) & mask;
      out[c] = (static_cast<float>(code) - zeros[g]) * scales[g];
    }
  }

 private:
  const RawTensor& words_;
  Numbers scales_;
  const RawTensor *zeros_, *groups_;
  Grid grid_;
  int64_t cols_;
  int bits_;
};

class PackedColumns : public RowDecoder {
 public:
  PackedColumns(const RawTensor& words, const RawTensor& scales, const RawTensor& zeros, const RawTensor* groups,
                int64_t cols, int64_t group, int bits, bool awq, bool zeros_less_one)
      : words_(words),
        zeros_(zeros),
        scales_(scales),
        groups_(groups),
        cols_(cols),
        group_(group),
        count_(scales.shape[0]),
        rows_(scales.shape[1]),
        bits_(bits),
        awq_(awq),
        zeros_less_one_(zeros_less_one),
        fixed_zero_(bits == 3 && zeros_less_one ? 4 : 0) {}
  void decode(int64_t row, float* out) const override {
    const auto count = static_cast<size_t>(count_);
    std::vector<float> scales(count), zeros(count);
    for (size_t g = 0; g < count; ++g) {
      scales[g] = scales_[static_cast<int64_t>(g) * rows_ + row];
      zeros[g] = static_cast<float>(zero(static_cast<int64_t>(g), row));
    }
    for (int64_t c = 0; c < cols_; ++c) {
      const auto g = static_cast<size_t>(groups_ ? word_at(*groups_, c) : c / group_);
      out[c] = (static_cast<float>(awq_ ? awq_code(words_, c, row) : code(c, row)) - zeros[g]) * scales[g];
    }
  }

 private:
  uint32_t awq_code(const RawTensor& words, int64_t line, int64_t row) const {
    static constexpr uint8_t kPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};  // nibble of a word in which column 0, 1, … lies
    return word_at(words, line * (rows_ / 8) + row / 8) >> (4 * kPlace[row % 8]) & 15;
  }
  // Element `at` of a stream of codes whose word w is `word(w)`.
  template <class Word>
  uint32_t from_stream(int64_t at, const Word& word) const {
    const int64_t bit = at * bits_, w = bit / 32, shift = bit % 32;
    uint64_t value = word(w);
    if (shift + bits_ > 32) value |= static_cast<uint64_t>(word(w + 1)) << 32;
    return static_cast<uint32_t>(value >> shift) & ((1u << bits_) - 1);
  }
  uint32_t code(int64_t col, int64_t row) const {
    return from_stream(col, [&](int64_t w) { return word_at(words_, w * rows_ + row); });
  }
  uint32_t zero(int64_t g, int64_t row) const {
    if (awq_) return awq_code(zeros_, g, row);
    if (fixed_zero_) return fixed_zero_;
    // One more in every code, added to whole words: writers subtract it so, and a code of zero borrows from the next.
    const uint32_t ones = !zeros_less_one_ ? 0 : bits_ == 2 ? 0x55555555 : bits_ == 4 ? 0x11111111 : 0x01010101;
    return from_stream(row, [&](int64_t w) { return word_at(zeros_, g * zeros_.shape[1] + w) + ones; });
  }

  const RawTensor &words_, &zeros_;
  Numbers scales_;
  const RawTensor* groups_;
  int64_t cols_, group_, count_, rows_;
  int bits_;
  bool awq_, zeros_less_one_;
  uint32_t fixed_zero_;  // where it is known without being read
};

class TableCodes : public RowDecoder {
 public:
  TableCodes(const BlockTable& parts, int64_t cols, int64_t block, int64_t nested_block, float nested_offset)
      : parts_(parts), cols_(cols), block_(block), nested_block_(nested_block), nested_offset_(nested_offset) {
    for (int64_t i = 0; i < 16; ++i) table_[static_cast<size_t>(i)] = f32_at(*parts.table, i);
  }
  void decode(int64_t row, float* out) const override {
    const uint8_t* codes = bytes_of(*parts_.codes);
    int64_t last = -1;
    float largest = 0;
    for (int64_t c = 0; c < cols_; ++c) {
      const int64_t i = row * cols_ + c, block = i / block_;
      if (block != last) largest = largest_of(last = block);
      out[c] = table_[codes[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15] * largest;
    }
  }

 private:
  float largest_of(int64_t block) const {
    if (!parts_.nested_table) return f32_at(*parts_.largest, block);
    const float part = f32_at(*parts_.nested_table, bytes_of(*parts_.largest)[block]);
    return part * f32_at(*parts_.nested_largest, block / nested_block_) + nested_offset_;
  }

  BlockTable parts_;
  int64_t cols_, block_, nested_block_;
  float nested_offset_;
  std::array<float, 16> table_{};
};

// Every column's group is one of `count`.
bool check_groups(const RawTensor* groups, int64_t cols, int64_t count, std::string& fault) {
  if (!groups) return true;
  if (groups->dtype != "I32" || groups->shape != std::vector<int64_t>{cols}) {
    fault = fmt::format("{} is not one I32 for each of {} columns", text_of(*groups), cols);
    return false;
  }
  for (int64_t c = 0; c < cols; ++c) {
    if (word_at(*groups, c) < static_cast<uint64_t>(count)) continue;
    fault = fmt::format("{} puts column {} in a group that is none of {}", groups->name, c, count);
    return false;
  }
  return true;
}

}  // namespace

float decode_e4m3(uint8_t code) {
  if ((code & 0x7f) == 0x7f) return kNaN;
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const float scale = std::bit_cast<float>(static_cast<uint32_t>(std::max(exponent, 1) + 127 - 7 - 3) << 23);
  const float magnitude = static_cast<float>(mantissa + (exponent ? 8 : 0)) * scale;
  return code & 0x80 ? -magnitude : magnitude;
}

float decode_e5m2(uint8_t code) { return f16_to_f32(static_cast<uint16_t>(code << 8)); }

float decode_e8m0(uint8_t code) {
  if (code == 255) return kNaN;
  return std::bit_cast<float>(code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23);
}

QuantisedMatrix scaled_codes(const RawTensor& codes, const RawTensor& scales, const RawTensor* zeros,
                             const QuantisedLayout& layout, float last_factor) {
  Extent extent;
  if (!extent_of(codes.shape, extent)) return refused(fmt::format("{} is no matrix", text_of(codes)));
  if (!Numbers(scales).valid()) return refused(fmt::format("{} holds no scales", text_of(scales)));
  Grid grid;
  std::string fault;
  QuantisedLayout ways = layout;
  if (Numbers(scales).is_e8m0()) ways.group_sizes.insert(32);  // MXFP8's
  if (!find_grid(scales, extent, ways, grid, fault)) return refused(std::move(fault));
  if (zeros && (zeros->dtype != "I8" || count_of(*zeros) != count_of(scales)))
    return refused(fmt::format("{} does not have a zero point for each scale in {}", text_of(*zeros), text_of(scales)));
  return {codes.shape, std::make_shared<ScaledCodes>(codes, scales, zeros, grid, extent.cols, last_factor),
          codes.dtype == "I8" ? "INT8" : "FP8", ""};
}

QuantisedMatrix paired_codes(const RawTensor& codes, const RawTensor& scales, const RawTensor* global, bool divides) {
  Extent extent;
  const Numbers numbers(scales);
  if (codes.dtype != "U8" || !extent_of(codes.shape, extent))
    return refused(fmt::format("{} is no matrix of pairs of codes", text_of(codes)));
  extent.cols *= 2;
  const int64_t group = global ? 16 : 32;
  std::vector<int64_t> expected = codes.shape;
  expected.back() = ceil_div(extent.cols, group);
  if ((global ? !numbers.is_e4m3() : !numbers.is_e8m0()) || scales.shape != expected) {
    return refused(fmt::format("{} is not {} {}: a scale for every {} weights of {}", text_of(scales),
                               global ? "F8_E4M3" : "U8", text_of(expected), group, text_of(codes)));
  }
  if (global && (global->dtype != "F32" || (count_of(*global) != 1 && count_of(*global) != extent.matrices)))
    return refused(fmt::format("{} is not one F32 for each matrix", text_of(*global)));
  std::vector<int64_t> shape = codes.shape;
  shape.back() = extent.cols;
  return {shape, std::make_shared<PairedCodes>(codes, scales, global, divides, extent, group),
          global ? "NVFP4" : "MXFP4", ""};
}

QuantisedMatrix packed_rows(const RawTensor& words, const RawTensor& scales, const RawTensor& shape,
                            const RawTensor* zeros, const RawTensor* groups, const QuantisedLayout& layout) {
  if (words.dtype != "I32" || words.shape.size() != 2)
    return refused(fmt::format("{} is no matrix of packed words", text_of(words)));
  if ((shape.dtype != "I64" && shape.dtype != "I32") || count_of(shape) != 2)
    return refused(fmt::format("{} is not two whole numbers", text_of(shape)));
  Extent extent;
  const bool wide = shape.dtype == "I64";
  const auto number = [&](int64_t i) {
    if (!wide) return static_cast<int64_t>(static_cast<int32_t>(word_at(shape, i)));
    return static_cast<int64_t>(static_cast<uint64_t>(word_at(shape, 2 * i)) |
                                static_cast<uint64_t>(word_at(shape, 2 * i + 1)) << 32);
  };
  extent.rows = number(0);
  extent.cols = number(1);
  std::vector<int> ways;
  for (const int bits : {2, 4, 8}) {
    if (extent.cols > 0 && ceil_div(extent.cols, 32 / bits) == words.shape[1]) ways.push_back(bits);
  }
  if (extent.rows < 1 || extent.rows != words.shape[0] || ways.size() != 1) {
    return refused(fmt::format("{} does not pack the [{}, {}] of {} in 2, 4 or 8 bits", text_of(words), extent.rows,
                               extent.cols, shape.name));
  }
  const int bits = ways.front();
  if (!Numbers(scales).valid()) return refused(fmt::format("{} holds no scales", text_of(scales)));
  Grid grid;
  std::string fault;
  if (groups) {
    if (scales.shape.size() != 2 || scales.shape[0] != extent.rows)
      return refused(fmt::format("{} has no scales for each of {} rows", text_of(scales), extent.rows));
    grid = {1, 1, extent.rows, scales.shape[1], extent.rows, false};
  } else if (!find_grid(scales, extent, layout, grid, fault)) {
    return refused(std::move(fault));
  }
  if (!check_groups(groups, extent.cols, grid.cols, fault)) return refused(std::move(fault));
  const std::vector<int64_t> expected{ceil_div(grid.rows, 32 / bits), grid.cols};
  if (zeros && (zeros->dtype != "I32" || zeros->shape != expected))
    return refused(fmt::format("{} is not I32 {}: packed zero points", text_of(*zeros), text_of(expected)));
  return {{extent.rows, extent.cols},
          std::make_shared<PackedRows>(words, scales, zeros, groups, grid, extent.cols, bits),
          fmt::format("INT{}", bits),
          ""};
}

QuantisedMatrix packed_columns(const RawTensor& words, const RawTensor& scales, const RawTensor& zeros,
                               const RawTensor* groups, const QuantisedLayout& layout) {
  for (const RawTensor* raw : {&words, &scales, &zeros}) {
    if (raw->shape.size() == 2 && raw->shape[0] > 0 && raw->shape[1] > 0 && (raw == &scales || raw->dtype == "I32"))
      continue;
    return refused(fmt::format("{} is not a matrix of {}", text_of(*raw), raw == &scales ? "scales" : "I32 words"));
  }
  if (!Numbers(scales).valid()) return refused(fmt::format("{} holds no scales", text_of(scales)));
  const int64_t rows = scales.shape[1], count = scales.shape[0];
  const bool awq = rows % 8 == 0 && words.shape[1] == rows / 8;
  const int64_t bits = awq ? 4 : zeros.shape[1] * 32 / rows;
  const bool known = bits == 2 || bits == 3 || bits == 4 || bits == 8;
  if ((!awq && words.shape[1] != rows) || !known || zeros.shape[0] != count || zeros.shape[1] * 32 != rows * bits ||
      (!awq && words.shape[0] * 32 % bits != 0)) {
    return refused(fmt::format("{}, {} and {} do not pack one matrix in 2, 3, 4 or 8 bits", text_of(words),
                               text_of(zeros), text_of(scales)));
  }
  if (bits == 3 && layout.zeros_less_one && !layout.symmetric) {
    return refused(text_of(zeros) + " holds zero points of 3 bits less one, which programs write in different ways");
  }
  const int64_t cols = awq ? words.shape[0] : words.shape[0] * 32 / bits;
  std::set<int64_t> ways;
  if (count == 1) ways.insert(cols);
  for (const int64_t group : layout.group_sizes) {
    if (group > 0 && ceil_div(cols, group) == count) ways.insert(std::min(group, cols));
  }
  std::string fault;
  if (!check_groups(groups, cols, count, fault)) return refused(std::move(fault));
  if (!groups && ways.size() != 1) {
    return refused(fmt::format("{} has {} groups for {} columns, which is no group_size of config.json ({})",
                               text_of(scales), count, cols, fmt::join(layout.group_sizes, ", ")));
  }
  const int64_t group = groups ? 1 : *ways.begin();
  return {{rows, cols},
          std::make_shared<PackedColumns>(words, scales, zeros, groups, cols, group, static_cast<int>(bits), awq,
                                          layout.zeros_less_one),
          awq ? "AWQ" : fmt::format("GPTQ of {} bits", bits),
          ""};
}

QuantisedMatrix table_codes(const BlockTable& parts) {
  const auto wrong = [&](const RawTensor& raw, const std::string& why) {
    return refused(fmt::format("{} {}", text_of(raw), why));
  };
  const auto is = [](const RawTensor* raw, const char* dtype, int64_t count) {
    return raw && raw->dtype == dtype && count_of(*raw) == count;
  };
  const std::optional<Json> state =
      try_parse_json({reinterpret_cast<const char*>(parts.state->bytes.data()), parts.state->bytes.size()});
  const Json* dims = state && state->is_object() ? find(*state, "shape") : nullptr;
  const Json* block = dims ? find(*state, "blocksize") : nullptr;
  const auto whole = [](const Json& json) { return json.is_number_integer() && json.get<int64_t>() > 0; };
  if (!dims || !dims->is_array() || dims->size() < 2 || dims->size() > 3 ||
      !std::all_of(dims->begin(), dims->end(), whole) || !block || !whole(*block)) {
    return wrong(*parts.state, "is no description of a matrix");
  }
  const auto shape = dims->get<std::vector<int64_t>>();
  int64_t weights = 1;
  for (const int64_t n : shape) {
    if (__builtin_mul_overflow(weights, n, &weights)) return wrong(*parts.state, "describes too large a matrix");
  }
  const int64_t size = block->get<int64_t>(), blocks = ceil_div(weights, size);
  if (static_cast<int64_t>(parts.codes->bytes.size()) != ceil_div(weights, 2))  // of any dtype: it is storage
    return wrong(*parts.codes, fmt::format("does not hold the {} weights of {}", weights, text_of(shape)));
  if (!is(parts.table, "F32", 16)) return wrong(parts.table ? *parts.table : *parts.codes, "has no table of 16 values");
  int64_t nested = 1;
  float offset = 0;
  if (parts.nested_table || parts.nested_largest) {
    const Json* nested_block = find(*state, "nested_blocksize");
    const Json* nested_offset = find(*state, "nested_offset");
    if (!nested_block || !whole(*nested_block) || !nested_offset || !nested_offset->is_number())
      return wrong(*parts.state, "does not describe its nested scales");
    nested = nested_block->get<int64_t>();
    offset = nested_offset->get<float>();
    if (!is(parts.nested_table, "F32", 256) || !is(parts.nested_largest, "F32", ceil_div(blocks, nested)))
      return wrong(*parts.largest, "has nested scales of another size");
  }
  if (!is(parts.largest, parts.nested_table ? "U8" : "F32", blocks))
    return wrong(*parts.largest, fmt::format("is not a scale for each of {} blocks", blocks));
  const Json* kind = find(*state, "quant_type");
  return {shape, std::make_shared<TableCodes>(parts, shape.back(), size, nested, offset),
          fmt::format("bitsandbytes {}", kind && kind->is_string() ? kind->text() : "4 bits"), ""};
}

}  // namespace doppler
