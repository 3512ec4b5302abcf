// A tensor as it lies in memory: bytes that belong to somebody else (a mapped shard, as a rule). A browser maps no
// files: there a tensor has a source instead, which hands over a few rows at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "format/dtype.h"

namespace doppler {

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual uint64_t size() const = 0;
  virtual void read(uint64_t offset, std::span<std::byte> out) const = 0;  // within the tensor
};

struct Tensor {
  std::string name;  // the name in the source file
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;                            // [rows, cols], [cols], or [experts, rows, cols]
  std::span<const std::byte> bytes;                      // empty where there is a source
  std::shared_ptr<const TensorSource> source = nullptr;  // of the same bytes

  int64_t cols() const { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const {
    int64_t n = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) n *= shape[i];
    return n;
  }
  size_t stride() const { return row_bytes(dtype, static_cast<size_t>(cols())); }  // bytes from row to row
  const std::byte* row(int64_t r) const { return bytes.data() + static_cast<size_t>(r) * stride(); }
  uint64_t byte_size() const { return source ? source->size() : bytes.size(); }

  // Rows first … first + count - 1, one after another, in memory or read into `scratch`.
  const std::byte* rows_at(int64_t first, int64_t count, std::vector<std::byte>& scratch) const {
    if (!source) return row(first);
    scratch.resize(static_cast<size_t>(count) * stride());
    source->read(static_cast<uint64_t>(first) * stride(), scratch);
    return scratch.data();
  }
};

}  // namespace doppler
