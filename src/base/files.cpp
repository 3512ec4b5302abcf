#include "base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

// The mappings of all live MappedFiles, and those given to register_mapped_range.
class Mappings {
 public:
  void add(const std::byte* data, size_t size) {
    const std::lock_guard lock(mutex_);
    size_of_[data] = size;
  }
  void remove(const std::byte* data) {
    const std::lock_guard lock(mutex_);
    size_of_.erase(data);
  }
  bool hold(std::span<const std::byte> part) {
    const std::lock_guard lock(mutex_);
    auto next = size_of_.upper_bound(part.data());
    if (next == size_of_.begin()) return false;
    const auto& [data, size] = *std::prev(next);
    return part.data() + part.size() <= data + size;
  }

 private:
  std::mutex mutex_;
  std::map<const std::byte*, size_t> size_of_;
};

Mappings& mappings() {
  static Mappings all;
  return all;
}

void drop_pages(std::span<const std::byte> part) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(part.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(part.data() + part.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

[[noreturn]] void fail_io(const char* what, const fs::path& path, int error_number) {
  std::string todo;
  if (error_number == ENOSPC || error_number == EDQUOT) todo = "Free some disk space, or write to another disk";
  if (error_number == EACCES || error_number == EPERM || error_number == EROFS) todo = "Check the permissions";
  if (error_number == ENOENT) todo = "Check the path";
  fail({.code = ErrorCode::kFile,
        .what = what,
        .where = path.string(),
        .got = std::strerror(error_number),
        .todo = todo});
}

fs::path temporary_beside(const fs::path& path) {
  fs::path name = path.filename();
  return path.parent_path() / fmt::format(".{}.{}.partial", name.string(), random_name());
}

// Removes the temporary folders of writers of this folder that were killed: nobody holds a lock on those.
void sweep_abandoned(const fs::path& final_path) {
  const std::string head = "." + final_path.filename().string() + ".", tail = ".partial";
  const fs::path parent = final_path.has_parent_path() ? final_path.parent_path() : ".";
  std::vector<fs::path> abandoned;
  std::error_code ec;
  for (fs::directory_iterator item(parent, ec), end; !ec && item != end; item.increment(ec)) {
    const std::string name = item->path().filename().string();
    if (name.size() <= head.size() + tail.size() || !name.starts_with(head) || !name.ends_with(tail)) continue;
    const std::string writer = name.substr(head.size(), name.size() - head.size() - tail.size());
    if (writer.find_first_not_of("0123456789abcdef") == std::string::npos) abandoned.push_back(item->path());
  }
  for (const fs::path& folder : abandoned) {
    const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) fs::remove_all(folder, ec);
    ::close(fd);
  }
}

}  // namespace

std::string random_name() {
  uint64_t bits = 0;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&bits), sizeof bits) != 1)
    fail({.code = ErrorCode::kInternal, .what = "the system has no random numbers"});
  return fmt::format("{:016x}", bits);
}

bool file_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string read_text_file(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_io("the file cannot be opened", path, errno);
  struct stat status {};
  constexpr size_t kPiece = 1 << 16;
  std::string text;
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) text.reserve(static_cast<size_t>(status.st_size) + kPiece);
  for (size_t size = 0;;) {
    text.resize(size + kPiece);
    const ssize_t n = ::read(fd, text.data() + size, kPiece);
    if (n < 0 && errno == EINTR) continue;
    const int error_number = errno;
    if (n <= 0) ::close(fd);
    if (n < 0) fail_io("the file cannot be read", path, error_number);
    size += static_cast<size_t>(n);
    if (n > 0) continue;
    text.resize(size);
    return text;
  }
}

void write_file_whole(const fs::path& path, std::string_view bytes) {
  FileWriter writer(path);
  writer.write(std::as_bytes(std::span(bytes.data(), bytes.size())));
  writer.commit();
}

FileWriter::FileWriter(fs::path path) : path_(std::move(path)), temporary_(temporary_beside(path_)) {
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd_ < 0) fail_io("the file cannot be created", path_, errno);
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) {
    ::close(fd_);
    ::unlink(temporary_.c_str());
  }
}

void FileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      fail_io("the file cannot be written", path_, errno);
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
    written_ += static_cast<uint64_t>(n);
  }
}

void FileWriter::commit() {
  if (::fsync(fd_) != 0) fail_io("the file cannot be written", path_, errno);
  const int closed = ::close(std::exchange(fd_, -1));
  if (closed != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error_number = errno;
    ::unlink(temporary_.c_str());
    fail_io("the file cannot be written", path_, error_number);
  }
}

FolderWriter::FolderWriter(fs::path final_path) : final_(std::move(final_path)) {
  if (final_.filename().empty()) final_ = final_.parent_path();  // "dir/" names dir
  sweep_abandoned(final_);
  temporary_ = temporary_beside(final_);
  std::error_code ec;
  if (!fs::create_directories(temporary_, ec) || ec) fail_io("the folder cannot be created", final_, ec.value());
  lock_ = ::open(temporary_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ >= 0) ::flock(lock_, LOCK_EX | LOCK_NB);
}

FolderWriter::~FolderWriter() {
  std::error_code ec;
  if (!temporary_.empty()) fs::remove_all(temporary_, ec);
  if (lock_ >= 0) ::close(lock_);
}

void FolderWriter::commit(bool replace) {
  // Exchanged in one step, there is no moment without a whole folder of this name; the old one is then the temporary.
  if (replace && ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, final_.c_str(), RENAME_EXCHANGE) == 0) return;
  const bool unable = replace && errno != ENOENT;  // the file system cannot exchange: two steps, then
  fs::path old = temporary_;
  old += ".replaced";
  if (unable && ::rename(final_.c_str(), old.c_str()) != 0) {
    fail_io("what is there cannot be moved away", final_, errno);
  }
  if (::rename(temporary_.c_str(), final_.c_str()) != 0) {
    const int error_number = errno;
    if (unable) ::rename(old.c_str(), final_.c_str());
    if (error_number == ENOTEMPTY || error_number == EEXIST || error_number == ENOTDIR) {
      fail({.code = ErrorCode::kFile,
            .what = "something with this name is already there",
            .where = final_.string(),
            .todo = "Remove it first, or choose another name"});
    }
    fail_io("the folder cannot take its final name", final_, error_number);
  }
  temporary_ = unable ? old : fs::path();
}

MappedFile::MappedFile(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_io("the file cannot be opened", path, errno);
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd);
    fail({.code = ErrorCode::kFile,
          .what = "the file cannot be read",
          .where = path.string(),
          .expected = "a regular file",
          .got = S_ISDIR(status.st_mode) ? "a folder" : ""});
  }
  size_ = static_cast<size_t>(status.st_size);
  if (size_ > 0) {
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (address == MAP_FAILED) {
      const int error_number = errno;
      ::close(fd);
      fail_io("the file cannot be mapped into memory", path, error_number);
    }
    data_ = static_cast<const std::byte*>(address);
    mappings().add(data_, size_);
  }
  ::close(fd);
}

MappedFile::~MappedFile() {
  if (!data_) return;
  mappings().remove(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::release(std::span<const std::byte> part) const {
  if (data_) drop_pages(part);
}

void drop_mapped_pages(std::span<const std::byte> part) {
  if (!part.empty() && mappings().hold(part)) drop_pages(part);
}

void register_mapped_range(std::span<const std::byte> mapping) { mappings().add(mapping.data(), mapping.size()); }

void unregister_mapped_range(const std::byte* mapping) { mappings().remove(mapping); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_), EVP_sha256(), nullptr);
}

Sha256::~Sha256() { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_)); }

void Sha256::update(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), bytes.data(), bytes.size());
}

std::string Sha256::finish() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_), digest, &length);
  std::string hex;
  for (unsigned i = 0; i < length; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

}  // namespace doppler
