// Safetensors, the file format of Hugging Face checkpoints: eight bytes of header length, a JSON header with every
// tensor's dtype, shape and byte range, then the bytes. Files are mapped, not read.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "format/tensor.h"

namespace doppler {

class RowDecoder;

// A tensor as the file declares it. `dtype` stays the file's word ("BF16", "U8"), because checkpoints also hold raw
// bytes that are no weights by themselves (packed 4-bit blocks).
struct RawTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
  std::filesystem::path file;  // where it lies, for messages
  // Of a matrix that several tensors hold (format/quantised_rows.h): its rows. `dtype` is then the kind of storage, and
  // `bytes` is empty.
  std::shared_ptr<const RowDecoder> rows = nullptr;
};

// Bytes of one element of a safetensors dtype ("F32" → 4); 0 if the word is unknown.
size_t safetensors_element_bytes(std::string_view dtype);

// F32, F16 and BF16 as a Tensor; false for any other dtype.
bool to_tensor(const RawTensor& raw, Tensor& out);

class SafetensorsFile {
 public:
  // Maps the file and checks its header whole: length, JSON, dtypes, shape × element size == bytes, ranges inside the
  // file, one after the other without overlap or hole. Fails with a sentence.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, RawTensor>& tensors() const { return tensors_; }
  const RawTensor* find(const std::string& name) const;
  const Json& metadata() const { return metadata_; }  // "__metadata__", or an empty object

  // Tells the system that these bytes of a tensor are not needed soon, so that streaming through a checkpoint does
  // not keep all of it resident. The bytes stay readable.
  void release(std::span<const std::byte> bytes) const { file_.release(bytes); }

 private:
  std::filesystem::path path_;
  MappedFile file_;
  std::map<std::string, RawTensor> tensors_;
  Json metadata_ = Json::object();
};

// All tensors of a checkpoint folder: model.safetensors.index.json with its shards, or one .safetensors file.
class SafetensorsFolder {
 public:
  explicit SafetensorsFolder(const std::filesystem::path& folder);

  const std::map<std::string, RawTensor>& tensors() const { return tensors_; }
  const RawTensor* find(const std::string& name) const;
  void release(const RawTensor& tensor, std::span<const std::byte> bytes) const;

 private:
  void add(const std::filesystem::path& path);

  std::vector<SafetensorsFile> files_;
  std::map<std::string, RawTensor> tensors_;
  std::map<std::string, size_t> file_of_;
};

// Writes a safetensors file whole or not at all. Tensors are laid out in the order given.
void write_safetensors(const std::filesystem::path& path, const std::vector<RawTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace doppler
