// Files and folders that are whole or not there: written under a temporary name that nobody can foresee, renamed at the
// end.
#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/rand.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kTail = ".partial";
constexpr size_t kRandomDigits = 16;

fs::path hidden_beside(const fs::path& path, std::string_view ending) {
  return path.parent_path() / fmt::format(".{}.{}", path.filename().string(), ending);
}

fs::path temporary_beside(const fs::path& path) {
  return hidden_beside(path, fmt::format("{}{}", random_name(), kTail));
}

// Removes the temporary files and folders of this target. Only for who holds its lock: then their writers are dead.
void sweep_abandoned(const fs::path& target) {
  const std::string head = hidden_beside(target, "").filename().string();
  std::vector<fs::path> abandoned;
  std::error_code ec;
  for (fs::directory_iterator item(target.has_parent_path() ? target.parent_path() : ".", ec), end; !ec && item != end;
       item.increment(ec)) {
    const std::string name = item->path().filename().string();
    if (name.size() != head.size() + kRandomDigits + kTail.size()) continue;
    if (!name.starts_with(head) || !name.ends_with(kTail)) continue;
    const std::string writer = name.substr(head.size(), kRandomDigits);
    if (writer.find_first_not_of("0123456789abcdef") == std::string::npos) abandoned.push_back(item->path());
  }
  for (const fs::path& path : abandoned) fs::remove_all(path, ec);
}

// "dir/" names dir.
fs::path without_slash(const fs::path& path) { return path.filename().empty() ? path.parent_path() : path; }

const fs::path& with_parents(const fs::path& path) {
  std::error_code ec;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), ec);
  if (ec) fail_io("the folder cannot be created", path, ec.value());
  return path;
}

}  // namespace

std::string random_name() {
  uint64_t bits = 0;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&bits), sizeof bits) != 1)
    fail({.code = ErrorCode::kInternal, .what = "the system has no random numbers"});
  return fmt::format("{:016x}", bits);
}

TargetLock::TargetLock(const fs::path& target) : path_(hidden_beside(target, "lock")) {
  for (struct stat held{}, there{};;) {
    fd_ = ::open(path_.c_str(), O_RDONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
    if (fd_ < 0) fail_io("the lock of a file to be written cannot be created", path_, errno);
    int locked = -1;
    while ((locked = ::flock(fd_, LOCK_EX | LOCK_NB)) != 0 && errno == EINTR) {
    }
    if (locked != 0) {
      const bool taken = errno == EWOULDBLOCK;
      ::close(std::exchange(fd_, -1));
      if (taken) {
        fail({.code = ErrorCode::kFile,
              .what = "this is being written already",
              .where = target.string(),
              .todo = "Wait until that has ended, or choose another name"});
      }
      ::unlink(path_.c_str());
      return;
    }
    // Whoever held it before may have removed the file since it was opened here; the next one would lock another.
    if (::fstat(fd_, &held) == 0 && ::lstat(path_.c_str(), &there) == 0 && held.st_ino == there.st_ino &&
        held.st_dev == there.st_dev)
      break;
    ::close(fd_);
  }
  sweep_abandoned(target);
}

TargetLock::~TargetLock() {
  if (fd_ < 0) return;
  ::unlink(path_.c_str());
  ::close(fd_);
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
      const char* source = errno == EFAULT ? mapped_file_at(bytes.data()) : nullptr;
      if (source) fail_io("a file was cut off, or its disk failed, while it was read", source, EIO);
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

FolderWriter::FolderWriter(fs::path final_path)
    : final_(without_slash(final_path)), lock_(with_parents(final_)), temporary_(temporary_beside(final_)) {
  if (::mkdir(temporary_.c_str(), 0777) != 0) fail_io("the folder cannot be created", final_, errno);
}

FolderWriter::~FolderWriter() {
  std::error_code ec;
  if (!temporary_.empty()) fs::remove_all(temporary_, ec);
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

}  // namespace doppler
