// A tensor as it lies in memory: bytes that belong to somebody else (a mapped shard, as a rule).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "format/dtype.h"

namespace doppler {

struct Tensor {
  std::string name;  // the name in the source file
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // [rows, cols], [cols], or [experts, rows, cols]
  std::span<const std::byte> bytes;

  int64_t cols() const { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const {
    int64_t n = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) n *= shape[i];
    return n;
  }
  size_t stride() const { return row_bytes(dtype, static_cast<size_t>(cols())); }  // bytes from row to row
  const std::byte* row(int64_t r) const { return bytes.data() + static_cast<size_t>(r) * stride(); }
};

}  // namespace doppler
