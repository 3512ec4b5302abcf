#include "engine/shard_check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <system_error>

#include "base/cache_folder.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/say.h"
#include "base/threads.h"
#include "format/shard_hash.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMostEntries = 8192;  // shards of 64 MiB: half a terabyte of models
constexpr size_t kHashDigits = 64;
constexpr size_t kPieceBytes = 1 << 20;
constexpr int kMostThreads = 4;  // two or three of them are as fast as a fast disk
// A file that changed so lately may change again without another time: some file systems count in steps of 2 s.
constexpr int64_t kSettledNs = 2'000'000'000;

HashRecord::File as_file(const std::string& path, const struct stat& status) {
  return {path, static_cast<uint64_t>(status.st_size), static_cast<uint64_t>(status.st_dev),
          static_cast<uint64_t>(status.st_ino),
          static_cast<int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec};
}

bool settled(const HashRecord::File& file) {
  struct timespec now {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec - file.changed_ns > kSettledNs;
}

// The number that a line begins with, which is removed with the space behind it.
template <class Number>
bool take(std::string_view& line, Number& number) {
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (error != std::errc() || end == line.data() + line.size() || *end != ' ') return false;
  line.remove_prefix(static_cast<size_t>(end - line.data()) + 1);
  return true;
}

}  // namespace

fs::path hash_record_path() {
  const fs::path folder = own_cache();
  return folder.is_absolute() ? folder / "hashes" : fs::path();  // nobody's home: nothing is remembered
}

HashRecord::HashRecord(fs::path path) : path_(std::move(path)) {
  std::error_code ignored;
  if (path_.empty() || !fs::is_regular_file(path_, ignored)) return;
  std::ifstream in(path_, std::ios::binary);
  for (std::string text; entries_.size() < kMostEntries && std::getline(in, text);) {
    std::string_view line = text;
    Entry entry;
    if (line.size() <= kHashDigits || line[kHashDigits] != ' ') continue;
    entry.hash = line.substr(0, kHashDigits);
    line.remove_prefix(kHashDigits + 1);
    File& file = entry.file;
    if (!take(line, file.size) || !take(line, file.changed_ns) || !take(line, file.device) || !take(line, file.inode))
      continue;
    file.path = line;
    if (entry.hash.find_first_not_of("0123456789abcdef") == std::string::npos) entries_.push_back(std::move(entry));
  }
}

std::optional<HashRecord::File> HashRecord::file(const fs::path& path) {
  std::error_code ec;
  const std::string whole = fs::canonical(path, ec).string();
  struct stat status {};
  if (ec || ::stat(whole.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return as_file(whole, status);
}

std::string HashRecord::find(const File& file) const {
  for (const Entry& entry : entries_) {
    if (entry.file == file) return entry.hash;
  }
  return "";
}

void HashRecord::add(File file, std::string hash) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.file.path == file.path; });
  entries_.push_back({std::move(file), std::move(hash)});
}

// Not by what fails: a record is a convenience, and no reason not to run a model.
void HashRecord::write() const {
  if (path_.empty()) return;
  std::error_code ec;
  fs::create_directories(path_.parent_path(), ec);
  const fs::path temporary = path_.parent_path() / fmt::format(".{}.{}", path_.filename().string(), random_name());
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  const size_t first = entries_.size() - std::min(entries_.size(), kMostEntries);
  for (size_t i = first; i < entries_.size(); ++i) {
    const auto& [file, hash] = entries_[i];
    if (HashRecord::file(file.path) != file || file.path.find('\n') != std::string::npos) continue;
    out << fmt::format("{} {} {} {} {} {}\n", hash, file.size, file.changed_ns, file.device, file.inode, file.path);
  }
  out.close();
  if (out) fs::rename(temporary, path_, ec);
  if (!out || ec) fs::remove(temporary, ec);
}

ShardCheck::ShardCheck(const RdrrReader& artefact, fs::path record) : artefact_(artefact), record_(std::move(record)) {
  if (!ShardHash::knows(artefact.hash_algorithm())) return;
  const std::vector<RdrrShard>& shards = artefact.shards();
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::optional<HashRecord::File> file = HashRecord::file(artefact.folder() / shards[i].filename);
    if (!file || record_.find(*file) != shards[i].hash) unknown_.push_back(i);
  }
  const size_t count = std::min(unknown_.size(), static_cast<size_t>(std::min(kMostThreads, available_cores())));
  try {
    for (size_t i = 0; i < count; ++i) threads_.emplace_back([this] { hash_files(); });
  } catch (const std::system_error&) {  // fewer, then; without any, finish() does it
  }
}

ShardCheck::~ShardCheck() {
  stop_ = true;
  for (std::thread& thread : threads_) thread.join();
}

void ShardCheck::hash_files() {
  for (size_t i; !stop_ && (i = next_++) < unknown_.size();) hash_file(unknown_[i]);
}

void ShardCheck::hash_file(size_t number) {
  const RdrrShard& shard = artefact_.shards()[number];
  const fs::path path = artefact_.folder() / shard.filename;
  const std::optional<HashRecord::File> before = HashRecord::file(path);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not make it wait
  ShardHash hash(artefact_.hash_algorithm());
  uint64_t shard_bytes = 0;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::byte> piece(kPieceBytes);
  ssize_t got = -1;
  while (fd >= 0 && !stop_) {
    got = ::read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    hash.update(std::span(piece).first(static_cast<size_t>(got)));
    read_ += static_cast<uint64_t>(got);
    shard_bytes += static_cast<uint64_t>(got);
  }
  const int error_number = errno;
  if (fd >= 0) ::close(fd);
  if (stop_) return;
  const std::lock_guard lock(mutex_);
  if (got != 0) {
    error_ = Error{.code = ErrorCode::kFile,
                   .what = "a shard cannot be read",
                   .where = path.string(),
                   .got = std::strerror(error_number)};
    stop_ = true;
    return;
  }
  if (log_level() == LogLevel::kVerbose) {
    say_dim("{}: {:.1f} MiB read and hashed in {:.1f} ms", shard.filename, static_cast<double>(shard_bytes) / (1 << 20),
            ms_since(start));
  }
  const std::string digest = hash.finish(shard.hash);
  if (digest != shard.hash) {
    error_ = Error{.code = ErrorCode::kFormat,
                   .what = "a shard's bytes are not those that the manifest was written for",
                   .where = path.string(),
                   .expected = artefact_.hash_algorithm() + " " + shard.hash,
                   .got = digest,
                   .todo = "Fetch or convert the model again, or run it all the same with --no-verify"};
    stop_ = true;
    return;
  }
  if (!before || HashRecord::file(path) != before || !settled(*before)) return;
  record_.add(*before, digest);
  learned_ = true;
}

void ShardCheck::finish() {
  if (threads_.empty()) hash_files();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  if (learned_) record_.write();
  if (error_) fail(*error_);
}

}  // namespace doppler
