// Files: read whole, mapped, or written whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace doppler {

// Whether something of this name is there, of any kind, or a regular file, or a folder. Where the system cannot tell (a
// disk that fails, a folder that may not be searched) these fail: "no" would let another file be taken, or none.
bool file_exists(const std::filesystem::path& path);
bool is_file(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

// Fails with the system's reason and what to do about it.
[[noreturn]] void fail_io(const char* what, const std::filesystem::path& path, int error_number);

// A text longer than this is refused: no manifest, template or prompt is.
inline constexpr size_t kLongestText = 128 << 20;

// The whole content of a regular file; what is none (a pipe nobody writes to, a device without an end) is refused.
std::string read_text_file(const std::filesystem::path& path);

// What a person hands in: also a pipe, standard input, a terminal.
std::string read_input(const std::filesystem::path& path);

// Reads a file from front to back. Unlike a mapping, a file that is cut off meanwhile just ends.
class FileReader {
 public:
  explicit FileReader(const std::filesystem::path& path, bool only_regular = true);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  int fd() const { return fd_; }
  uint64_t size() const { return size_; }  // when it was opened; 0 of what has none
  size_t read(std::span<std::byte> into);  // bytes that came; none at the end

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// Sixteen hexadecimal digits that nobody can foresee, for temporary names: a process's number is the same in two
// containers that share a volume.
std::string random_name();

// Writes under a temporary name in the same folder, syncs, then renames. Fails on a full disk, and leaves nothing
// behind then.
void write_file_whole(const std::filesystem::path& path, std::string_view bytes);

// One writer for a name, in this process, in another, or in another container on the same volume: a second one fails
// with a sentence while the first lives. Taken, it removes what writers of this name left when they were killed.
class TargetLock {
 public:
  explicit TargetLock(const std::filesystem::path& target);
  ~TargetLock();
  TargetLock(const TargetLock&) = delete;
  TargetLock& operator=(const TargetLock&) = delete;

 private:
  std::filesystem::path path_;
  int fd_ = -1;  // none where the file system has no locks: then only names are unique
};

// A file being written: nothing called `path` exists until commit(). Destroyed without commit(), it is removed.
class FileWriter {
 public:
  explicit FileWriter(std::filesystem::path path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::span<const std::byte> bytes);
  void commit();
  uint64_t written() const { return written_; }

 private:
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
  uint64_t written_ = 0;
};

// A folder being written: everything goes to a temporary sibling, which takes the final name at commit().
// Destroyed without commit(), the temporary folder is removed.
class FolderWriter {
 public:
  explicit FolderWriter(std::filesystem::path final_path);
  ~FolderWriter();
  FolderWriter(const FolderWriter&) = delete;
  FolderWriter& operator=(const FolderWriter&) = delete;

  const std::filesystem::path& path() const { return temporary_; }  // write here
  // Fails if something of the final name is there, unless it is to be replaced: then it stays until the new folder has
  // its name, and is removed.
  void commit(bool replace = false);

 private:
  std::filesystem::path final_;
  TargetLock lock_;
  std::filesystem::path temporary_;
};

// Read-only memory map of a whole regular file. An empty file maps to an empty span.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Lets the system drop the whole pages inside `part` (of bytes()) from memory; they stay readable.
  void release(std::span<const std::byte> part) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// If `part` lies in a registered mapping of files, lets the system drop the whole pages inside it from memory; they
// stay readable. Does nothing to any other memory.
void drop_mapped_pages(std::span<const std::byte> part);

// Every MappedFile is registered; who maps files in another way registers each file's range, and unregisters it before
// unmapping.
void register_mapped_range(std::span<const std::byte> mapping, const std::filesystem::path& file);
void unregister_mapped_range(const std::byte* mapping);

// The file that is mapped at this address, or null. For a handler of SIGBUS, which comes when the file was cut off or
// its disk fails: takes no lock and allocates nothing.
const char* mapped_file_at(const void* address);

// Lower-case hex of SHA-256.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(std::span<const std::byte> bytes);
  std::string finish();

 private:
  void* context_;
};
std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace doppler
