// The number formats a weight can be stored in: how many weights make a block, how many bytes per block takes.
//
// A matrix [rows, cols] is stored row by row; a row of K weights takes ceil(K / block) blocks, the tail holding
// zeros that no kernel may multiply with anything but zero (K = 1152 is 4.5 blocks of 256).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace doppler {

// Names and layouts of the quantised types are ggml's.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ3_XXS,
  kIQ3_S,
  kIQ1_S,
  kMXFP4,
};
inline constexpr int kDTypeCount = static_cast<int>(DType::kMXFP4) + 1;

struct DTypeInfo {
  std::string_view name;  // "Q4_K"
  int block_weights;      // weights in a block (1 for plain floats)
  int block_bytes;
};

const DTypeInfo& info(DType type);
inline std::string_view name_of(DType type) { return info(type).name; }

// "Q4_K", "q4_k" or the artefact's "Q4_K_M"; false if unknown.
bool dtype_from_name(std::string_view name, DType& out);

// Bytes of one row of `cols` weights, the padded tail included.
size_t row_bytes(DType type, size_t cols);

}  // namespace doppler
