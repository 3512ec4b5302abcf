// GGUF, llama.cpp's file format, versions 2 and 3: a header of typed key-value pairs (the model's numbers, its
// tokenizer and chat template), a list of tensors, then their bytes. The file is mapped; strings and arrays are views
// into it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/files.h"
#include "format/tensor.h"

namespace doppler {

// The types of values, by the numbers that stand in the file.
enum class GgufType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

// An array of numbers stays as bytes in the file (`raw`, not aligned); one of strings is a list of views.
struct GgufArray {
  GgufType type = GgufType::kUint8;
  uint64_t count = 0;
  std::span<const std::byte> raw;
  std::vector<std::string_view> strings;

  double number(uint64_t index) const;  // 0 for strings; index < count
};

struct GgufValue {
  GgufType type = GgufType::kUint8;
  std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray> value;

  bool is_number() const { return value.index() < 3; }
  double number() const;            // 0 unless is_number()
  std::string_view string() const;  // empty unless it is one
  const GgufArray* array() const { return std::get_if<GgufArray>(&value); }
  const bool* boolean() const { return std::get_if<bool>(&value); }
};

// The number ggml knows a type by; false where ours and ggml's do not meet.
bool dtype_from_ggml(uint32_t number, DType& out);
uint32_t ggml_number(DType type);

inline constexpr uint32_t kGgufVersion = 3;
inline constexpr uint64_t kGgufAlignment = 32;  // of a tensor's first byte, unless general.alignment says otherwise

class GgufFile {
 public:
  // Maps the file and checks all of its header: magic, version, counts, strings, types, dimensions, and that every
  // tensor lies inside the file, aligned, and apart from every other. Fails with a sentence. Any part of a split model
  // (NAME-00002-of-00005.gguf) stands for all of them: the first has the metadata, each has some of the tensors.
  explicit GgufFile(const std::filesystem::path& path);
  // The same from bytes that outlive the result; `where` names them in errors.
  GgufFile(std::span<const std::byte> bytes, const std::string& where);

  const std::string& where() const { return where_; }
  uint64_t size() const { return size_; }  // of all parts
  const std::map<std::string_view, GgufValue>& metadata() const { return metadata_; }
  const GgufValue* find(std::string_view key) const;

  // Shapes are turned round into ours: [rows, cols] where ggml says (cols, rows).
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor* tensor(std::string_view name) const;

  // Lets the system drop pages that were read; the bytes stay readable.
  void release(std::span<const std::byte> part) const { drop_mapped_pages(part); }

 private:
  void read();
  void join_parts(const std::filesystem::path& first);  // in gguf_split.cpp

  std::string where_;
  MappedFile file_;
  std::vector<MappedFile> more_;  // the parts after the first
  std::span<const std::byte> bytes_;
  uint64_t size_ = 0;
  std::map<std::string_view, GgufValue> metadata_;
  std::vector<Tensor> tensors_;
  std::map<std::string_view, size_t> by_name_;
};

// Where part `number` (from 1) of a split model lies, given any of its parts; empty for a name that is none of a part.
std::filesystem::path gguf_part(const std::filesystem::path& path, uint64_t number);

// True for a regular file that begins as GGUF files do.
bool is_gguf(const std::filesystem::path& path);

}  // namespace doppler
