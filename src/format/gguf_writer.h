// Writes a GGUF file (version 3) whole or not at all: first everything about it, then the tensors' bytes in order.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "format/gguf.h"

namespace doppler {

// The header, gathered in memory; also usable without a file (to be read back by GgufFile).
class GgufHeader {
 public:
  void put(std::string_view key, std::string_view text);
  void put(std::string_view key, const char* text) { put(key, std::string_view(text)); }
  void put(std::string_view key, uint32_t number);
  void put(std::string_view key, float number);
  void put(std::string_view key, bool flag);
  void put(std::string_view key, const std::vector<std::string>& texts);
  void put(std::string_view key, const std::vector<float>& numbers);
  void put(std::string_view key, const std::vector<int32_t>& numbers);

  // Tensors lie in the order of these calls. Rows must be whole blocks of the type.
  void add_tensor(std::string name, DType dtype, const std::vector<int64_t>& shape);

  std::string bytes() const;      // up to the first tensor, padding included
  uint64_t tensor_bytes() const;  // of all tensors with the padding between them

 private:
  friend class GgufWriter;
  struct Entry {
    std::string name;
    DType dtype;
    std::vector<int64_t> shape;
    uint64_t offset, size;
  };
  void key(std::string_view name, GgufType type);

  std::string pairs_;
  uint64_t pair_count_ = 0;
  std::vector<Entry> tensors_;
  uint64_t end_ = 0;  // of the last tensor's bytes
};

// Writes a GGUF file whole or not at all; one writer of the same name at a time.
class GgufWriter {
 public:
  GgufWriter(const std::filesystem::path& path, GgufHeader header);

  // The bytes of the tensors in the header's order, in any number of pieces; a piece does not cross tensors.
  void write(std::span<const std::byte> bytes);
  void commit();  // fails if a tensor's bytes are missing
  uint64_t written() const { return file_.written(); }

 private:
  GgufHeader header_;
  TargetLock lock_;
  FileWriter file_;
  size_t tensor_ = 0;
  uint64_t done_ = 0;  // bytes of that tensor
};

}  // namespace doppler
