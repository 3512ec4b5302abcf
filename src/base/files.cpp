#include "base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

// A mapped file as a handler of signals finds it. Nodes are used again but never freed, and `name` changes only while
// `begin` is 0, so whoever faults in a mapping can read its name.
struct NamedMapping {
  std::atomic<uintptr_t> begin = 0, end = 0;
  std::string name;
  NamedMapping* next = nullptr;
};
constinit std::atomic<NamedMapping*> named_mappings = nullptr;

// The mappings of all live MappedFiles, and those given to register_mapped_range.
class Mappings {
 public:
  void add(std::span<const std::byte> bytes, std::string name) {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      auto* fresh = new NamedMapping;
      fresh->next = named_mappings;
      named_mappings = fresh;
      free_.push_back(fresh);
    }
    NamedMapping* node = free_.back();
    free_.pop_back();
    node->name = std::move(name);
    node->end = reinterpret_cast<uintptr_t>(bytes.data() + bytes.size());
    node->begin = reinterpret_cast<uintptr_t>(bytes.data());
    live_[bytes.data()] = {bytes.size(), node};
  }
  void remove(const std::byte* data) {
    const std::lock_guard lock(mutex_);
    const auto it = live_.find(data);
    if (it == live_.end()) return;
    it->second.node->begin = 0;
    free_.push_back(it->second.node);
    live_.erase(it);
  }
  // Files may be mapped back to back, and `part` reach from one into the next.
  bool hold(std::span<const std::byte> part) {
    const std::lock_guard lock(mutex_);
    auto it = live_.upper_bound(part.data());
    if (it == live_.begin()) return false;
    const std::byte* end = (--it)->first;
    for (; it != live_.end() && it->first == end; ++it) {
      end += it->second.size;
      if (part.data() + part.size() <= end) return true;
    }
    return false;
  }

 private:
  struct Live {
    size_t size = 0;
    NamedMapping* node = nullptr;
  };
  std::mutex mutex_;
  std::map<const std::byte*, Live> live_;
  std::vector<NamedMapping*> free_;
};

Mappings& mappings() {
  static Mappings& all = *new Mappings;  // never destroyed: threads may outlive main()
  return all;
}

void drop_pages(std::span<const std::byte> part) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(part.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(part.data() + part.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

const char* kind_of(mode_t mode) {
  if (S_ISREG(mode)) return "a regular file";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  return S_ISSOCK(mode) ? "a socket" : "a device";
}

fs::file_type kind_at(const fs::path& path) {
  std::error_code ec;
  const fs::file_status status = fs::status(path, ec);
  if (status.type() != fs::file_type::none) return status.type();
  // Names that no file can have: a prompt in the place of a path.
  if (ec == std::errc::filename_too_long || ec == std::errc::too_many_symbolic_link_levels ||
      ec == std::errc::invalid_argument)
    return fs::file_type::not_found;
  fail_io("it cannot be told whether the file is there", path, ec.value());
}

[[noreturn]] void fail_too_long(const fs::path& path, const std::string& got) {
  fail({.code = ErrorCode::kFile,
        .what = "the text is too long",
        .where = path.string(),
        .expected = fmt::format("at most {} bytes", kLongestText),
        .got = got});
}

std::string read_whole(const fs::path& path, bool only_regular) {
  FileReader file(path, only_regular);
  if (file.size() > kLongestText) fail_too_long(path, fmt::format("{} bytes", file.size()));
  constexpr size_t kPiece = 1 << 16;
  std::string text;
  text.reserve(file.size() + kPiece);
  for (size_t size = 0;;) {
    text.resize(size + kPiece);
    const size_t n = file.read(std::as_writable_bytes(std::span(text.data() + size, kPiece)));
    size += n;
    if (size > kLongestText) fail_too_long(path, "more");
    if (n > 0) continue;
    text.resize(size);
    return text;
  }
}

}  // namespace

void fail_io(const char* what, const fs::path& path, int error_number) {
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

bool file_exists(const fs::path& path) { return kind_at(path) != fs::file_type::not_found; }
bool is_file(const fs::path& path) { return kind_at(path) == fs::file_type::regular; }
bool is_folder(const fs::path& path) { return kind_at(path) == fs::file_type::directory; }

std::string read_text_file(const fs::path& path) { return read_whole(path, true); }

std::string read_input(const fs::path& path) { return read_whole(path, false); }

FileReader::FileReader(const fs::path& path, bool only_regular) : path_(path) {
  // Without O_NONBLOCK, opening a pipe waits for somebody to write into it.
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | (only_regular ? O_NONBLOCK : 0));
  if (fd_ < 0) fail_io("the file cannot be opened", path, errno);
  struct stat status {};
  const bool known = ::fstat(fd_, &status) == 0;
  if (known && S_ISREG(status.st_mode)) {
    size_ = static_cast<uint64_t>(status.st_size);
  } else if (only_regular || !known) {
    ::close(fd_);
    fail({.code = ErrorCode::kFile,
          .what = "the file cannot be read",
          .where = path.string(),
          .expected = "a regular file",
          .got = known ? kind_of(status.st_mode) : ""});
  }
}

FileReader::~FileReader() { ::close(fd_); }

size_t FileReader::read(std::span<std::byte> into) {
  for (;;) {
    const ssize_t n = ::read(fd_, into.data(), into.size());
    if (n >= 0) return static_cast<size_t>(n);
    if (errno != EINTR) fail_io("the file cannot be read", path_, errno);
  }
}

MappedFile::MappedFile(const fs::path& path) {
  const FileReader file(path);
  if (file.size() == 0) return;
  void* address = ::mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (address == MAP_FAILED) fail_io("the file cannot be mapped into memory", path, errno);
  data_ = static_cast<const std::byte*>(address);
  size_ = file.size();
  mappings().add(bytes(), path.string());
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

void register_mapped_range(std::span<const std::byte> mapping, const fs::path& file) {
  mappings().add(mapping, file.string());
}

void unregister_mapped_range(const std::byte* mapping) { mappings().remove(mapping); }

const char* mapped_file_at(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const NamedMapping* node = named_mappings; node; node = node->next) {
    const uintptr_t begin = node->begin;
    if (begin != 0 && at >= begin && at < node->end) return node->name.c_str();
  }
  return nullptr;
}

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
