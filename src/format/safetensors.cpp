#include "format/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "base/error.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

// A header this long would describe some hundred million tensors; the format's own library refuses it too.
constexpr uint64_t kLongestHeader = 100'000'000;
constexpr const char* kFetchAgain = "The file may be truncated or damaged; fetch it again";

struct Place {
  uint64_t begin, end;
  const std::string* name;
};

[[noreturn]] void bad(const fs::path& path, const std::string& tensor, std::string what, std::string expected = "",
                      std::string got = "") {
  fail({.code = ErrorCode::kFormat,
        .what = std::move(what),
        .where = tensor.empty() ? path.string() : path.string() + ": " + tensor,
        .expected = std::move(expected),
        .got = std::move(got),
        .todo = kFetchAgain});
}

// Product of the shape and the element size; false when it does not fit or a dimension is negative.
bool tensor_bytes(const std::vector<int64_t>& shape, uint64_t element, uint64_t& bytes) {
  bytes = element;
  bool zero = false;
  for (int64_t n : shape) {
    if (n < 0) return false;
    if (n == 0)
      zero = true;
    else if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(n), &bytes))
      return false;
  }
  if (zero) bytes = 0;
  return true;
}

std::vector<int64_t> shape_in(const Json& info, const fs::path& path, const std::string& name) {
  std::vector<int64_t> shape;
  for (const Json& n : require_array(info, "shape", path.string() + ": " + name)) {
    if (!n.is_number_integer()) bad(path, name, "a tensor's shape is not made of whole numbers", "", brief(n));
    shape.push_back(n.get<int64_t>());
  }
  if (shape.size() > 8) bad(path, name, "a tensor has too many dimensions", "at most 8", std::to_string(shape.size()));
  return shape;
}

Place read_place(const Json& info, const fs::path& path, const std::string& name) {
  const Json& range = require_array(info, "data_offsets", path.string() + ": " + name);
  if (range.size() != 2 || !range[0].is_number_unsigned() || !range[1].is_number_unsigned()) {
    bad(path, name, "a tensor's data_offsets are wrong", "[begin, end]", brief(range));
  }
  return {range[0].get<uint64_t>(), range[1].get<uint64_t>(), nullptr};
}

}  // namespace

size_t safetensors_element_bytes(std::string_view dtype) {
  static constexpr struct {
    std::string_view name;
    size_t bytes;
  } kTypes[] = {{"F64", 8},     {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
                {"F8_E8M0", 1}, {"I64", 8}, {"I32", 4}, {"I16", 2},  {"I8", 1},      {"U64", 8},
                {"U32", 4},     {"U16", 2}, {"U8", 1},  {"BOOL", 1}};
  for (const auto& type : kTypes) {
    if (type.name == dtype) return type.bytes;
  }
  return 0;
}

bool to_tensor(const RawTensor& raw, Tensor& out) {
  if (raw.rows) return false;
  if (raw.dtype == "F32")
    out.dtype = DType::kF32;
  else if (raw.dtype == "F16")
    out.dtype = DType::kF16;
  else if (raw.dtype == "BF16")
    out.dtype = DType::kBF16;
  else
    return false;
  out.name = raw.name;
  out.shape = raw.shape;
  out.bytes = raw.bytes;
  return true;
}

SafetensorsFile::SafetensorsFile(const fs::path& path) : path_(path), file_(path) {
  const auto bytes = file_.bytes();
  if (bytes.size() < 8)
    bad(path, "", "the file is too short for safetensors", "at least 8 bytes", std::to_string(bytes.size()));
  uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), 8);
  if constexpr (std::endian::native == std::endian::big) header_size = __builtin_bswap64(header_size);
  if (header_size > kLongestHeader || header_size > bytes.size() - 8) {
    bad(path, "", "the safetensors header does not fit in the file",
        fmt::format("at most {} bytes", std::min<uint64_t>(kLongestHeader, bytes.size() - 8)),
        fmt::format("a length of {}", header_size));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, header_size);
  const Json header = parse_json(text, path.string());
  if (!header.is_object()) bad(path, "", "the safetensors header is not a JSON object", "", brief(header));
  const auto data = bytes.subspan(8 + header_size);

  std::vector<Place> places;
  for (const auto& item : header.items()) {
    const Json& info = item.value;
    if (item.key == "__metadata__") {
      if (info.is_object()) metadata_ = info;
      continue;
    }
    RawTensor tensor{item.key,
                     require_string(info, "dtype", path.string() + ": " + item.key),
                     shape_in(info, path, item.key),
                     {},
                     path};
    const size_t element = safetensors_element_bytes(tensor.dtype);
    if (element == 0) bad(path, tensor.name, "a tensor has an unknown dtype", "", tensor.dtype);
    Place place = read_place(info, path, tensor.name);
    uint64_t size = 0;
    if (place.begin > place.end || place.end > data.size()) {
      bad(path, tensor.name, "a tensor lies outside the file", fmt::format("a range within {} bytes", data.size()),
          fmt::format("{} to {}", place.begin, place.end));
    }
    if (!tensor_bytes(tensor.shape, element, size) || size != place.end - place.begin) {
      bad(path, tensor.name, "a tensor's shape and its bytes disagree", fmt::format("{} bytes", size),
          std::to_string(place.end - place.begin));
    }
    tensor.bytes = data.subspan(place.begin, size);
    const auto [it, fresh] = tensors_.emplace(tensor.name, std::move(tensor));
    if (!fresh) bad(path, it->first, "a tensor is listed twice");
    place.name = &it->first;
    places.push_back(place);
  }

  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  uint64_t end = 0;
  for (const Place& place : places) {
    if (place.begin < end) bad(path, *place.name, "a tensor overlaps another");
    if (place.begin > end) bad(path, *place.name, "there are bytes before this tensor that belong to none");
    end = place.end;
  }
  if (end != data.size()) {
    bad(path, "", "the file's size and its header disagree", fmt::format("{} bytes of tensors", end),
        std::to_string(data.size()));
  }
}

const RawTensor* SafetensorsFile::find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

SafetensorsFolder::SafetensorsFolder(const fs::path& folder) {
  if (!is_folder(folder)) {
    fail({.code = ErrorCode::kFile,
          .what = "the checkpoint is not a folder",
          .where = folder.string(),
          .expected = "a folder with .safetensors files",
          .todo = "Give the folder that holds config.json"});
  }
  const fs::path index_path = folder / "model.safetensors.index.json";
  if (file_exists(index_path)) {
    const Json index = parse_json(read_text_file(index_path), index_path.string());
    const Json& map = require_object(index, "weight_map", index_path.string());
    std::set<std::string> names;
    for (const auto& item : map.items()) {
      if (!item.value.is_string())
        bad(index_path, item.key, "a shard's name has the wrong type", "a string", brief(item.value));
      const std::string& file = item.value.text();
      if (file.empty() || file != fs::path(file).filename().string() || file == "." || file == "..") {
        bad(index_path, item.key, "a shard's name is not a plain file name", "", file);
      }
      names.insert(file);
    }
    files_.reserve(names.size());
    for (const std::string& name : names) {
      if (!file_exists(folder / name)) {
        fail({.code = ErrorCode::kFile,
              .what = "a shard of the checkpoint is missing",
              .where = (folder / name).string(),
              .todo = "Fetch the rest of the checkpoint"});
      }
      add(folder / name);
    }
    for (const auto& item : map.items()) {
      const auto it = file_of_.find(item.key);
      const std::string& file = item.value.text();
      if (it == file_of_.end() || files_[it->second].path().filename() != file) {
        bad(index_path, item.key, "the index names a tensor that its shard does not hold", "", file);
      }
    }
    return;
  }
  std::vector<fs::path> found;
  std::error_code ec;
  for (auto it = fs::directory_iterator(folder, ec); !ec && it != fs::directory_iterator(); it.increment(ec)) {
    if (it->path().extension() == ".safetensors") found.push_back(it->path());
  }
  if (ec) fail_io("the folder cannot be read", folder, ec.value());
  if (file_exists(folder / "model.safetensors")) found = {folder / "model.safetensors"};
  if (found.size() != 1) {
    fail({.code = ErrorCode::kFile,
          .what = "the folder holds no checkpoint this reader can use",
          .where = folder.string(),
          .expected = "model.safetensors, or shards with model.safetensors.index.json",
          .got = found.empty() ? "no .safetensors file"
                               : fmt::format("{} .safetensors files without an index", found.size())});
  }
  add(found.front());
}

void SafetensorsFolder::add(const fs::path& path) {
  files_.emplace_back(path);
  for (const auto& [name, tensor] : files_.back().tensors()) {
    if (!tensors_.emplace(name, tensor).second) {
      bad(path, name, "two shards hold the same tensor", "", tensors_[name].file.string());
    }
    file_of_[name] = files_.size() - 1;
  }
}

const RawTensor* SafetensorsFolder::find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

void SafetensorsFolder::release(const RawTensor& tensor, std::span<const std::byte> bytes) const {
  const auto it = file_of_.find(tensor.name);
  if (it != file_of_.end()) files_[it->second].release(bytes);
}

void write_safetensors(const fs::path& path, const std::vector<RawTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) {
    Json& notes = header["__metadata__"] = Json::object();
    for (const auto& [key, value] : metadata) notes[key] = value;
  }
  uint64_t end = 0;
  for (const RawTensor& tensor : tensors) {
    uint64_t size = 0;
    if (!tensor_bytes(tensor.shape, safetensors_element_bytes(tensor.dtype), size) || size != tensor.bytes.size()) {
      fail({.code = ErrorCode::kInternal,
            .what = "a tensor's shape and its bytes disagree",
            .where = path.string() + ": " + tensor.name,
            .expected = std::to_string(size),
            .got = std::to_string(tensor.bytes.size())});
    }
    header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {end, end + size}}};
    end += size;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data starts at a multiple of eight
  uint64_t length = text.size();
  if constexpr (std::endian::native == std::endian::big) length = __builtin_bswap64(length);
  const TargetLock lock(path);
  FileWriter writer(path);
  writer.write(std::as_bytes(std::span(&length, 1)));
  writer.write(std::as_bytes(std::span(text.data(), text.size())));
  for (const RawTensor& tensor : tensors) writer.write(tensor.bytes);
  writer.commit();
}

}  // namespace doppler
