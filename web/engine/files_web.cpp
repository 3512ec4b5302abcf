// base/files.h in a browser: the files of the model that the host has at hand. There is one folder, whose name plays
// no part. Nothing is written from here.
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "host.h"

namespace doppler {
namespace fs = std::filesystem;

bool file_exists(const fs::path& path) {
  const std::string name = path.filename().string();
  return host_file_size(name.data(), static_cast<uint32_t>(name.size())) >= 0;
}

std::string read_text_file(const fs::path& path) {
  const std::string name = path.filename().string();
  const double size = host_file_size(name.data(), static_cast<uint32_t>(name.size()));
  if (size < 0) fail({.code = ErrorCode::kFile, .what = "the model has no such file", .where = name});
  if (size > 512.0 * 1024 * 1024)
    fail({.code = ErrorCode::kMemory, .what = "the file is too large for a page", .where = name});
  std::string text(static_cast<size_t>(size), '\0');
  host_file_read(name.data(), static_cast<uint32_t>(name.size()), 0, text.data(), static_cast<uint32_t>(text.size()));
  return text;
}

void drop_mapped_pages(std::span<const std::byte>) {}

// No mapping here: the file's bytes are read and owned.
MappedFile::MappedFile(const fs::path& path) {
  const std::string name = path.filename().string();
  const double size = host_file_size(name.data(), static_cast<uint32_t>(name.size()));
  if (size < 0) fail({.code = ErrorCode::kFile, .what = "the model has no such file", .where = name});
  size_ = static_cast<size_t>(size);
  auto* bytes = new std::byte[size_];
  host_file_read(name.data(), static_cast<uint32_t>(name.size()), 0, bytes, static_cast<uint32_t>(size_));
  data_ = bytes;
}

MappedFile::~MappedFile() { delete[] data_; }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace doppler
