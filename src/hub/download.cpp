#include "hub/download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

#include "base/error.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail_io(const char* what, const fs::path& path) {
  const int error = errno;
  fail({.code = ErrorCode::kFile,
        .what = what,
        .where = path.string(),
        .got = std::strerror(error),
        .todo = error == ENOSPC || error == EDQUOT ? "Free some disk space and try again: it goes on where it stopped"
                                                   : "Check the permissions"});
}

// The hash that the hub names a file by, fed in order.
class BlobHash {
 public:
  BlobHash(const std::string& expected, uint64_t size) : expected_(expected), context_(EVP_MD_CTX_new()) {
    EVP_DigestInit_ex(context_, expected.size() == 40 ? EVP_sha1() : EVP_sha256(), nullptr);
    if (expected.size() == 40) {  // git hashes "blob SIZE\0" before the bytes
      const std::string head = fmt::format("blob {}", size);
      EVP_DigestUpdate(context_, head.c_str(), head.size() + 1);
    }
  }
  ~BlobHash() { EVP_MD_CTX_free(context_); }
  BlobHash(const BlobHash&) = delete;
  BlobHash& operator=(const BlobHash&) = delete;

  void update(const void* bytes, size_t size) {
    if (!expected_.empty()) EVP_DigestUpdate(context_, bytes, size);
  }
  std::string finish() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    EVP_DigestFinal_ex(context_, digest, &length);
    std::string hex;
    for (unsigned i = 0; i < length; ++i) hex += fmt::format("{:02x}", digest[i]);
    return hex;
  }

 private:
  std::string expected_;
  EVP_MD_CTX* context_;
};

// The file as far as it is there: a beginning without holes, and the hash of it.
class Beginning {
 public:
  Beginning(const fs::path& path, const DownloadSource& source, const std::function<bool()>& cancelled)
      : path_(path), source_(source) {
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd_ < 0) fail_io("the file cannot be created", path);
    struct stat status {};
    const bool regular = ::fstat(fd_, &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink == 1;
    if (!regular) {
      ::close(fd_);
      fail({.code = ErrorCode::kFile, .what = "something else is in the way", .where = path.string()});
    }
    hash_ = std::make_unique<BlobHash>(source_.hash, source_.size);
    const auto there = static_cast<uint64_t>(status.st_size);
    if (there <= source.size) size_ = there;
    std::vector<char> bytes(1 << 20);
    for (uint64_t at = 0; at < size_;) {
      const ssize_t n =
          ::pread(fd_, bytes.data(), std::min<uint64_t>(bytes.size(), size_ - at), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_io("what is there of the file cannot be read", path_);
      if (n == 0) {
        restart();
        break;
      }
      hash_->update(bytes.data(), static_cast<size_t>(n));
      at += static_cast<uint64_t>(n);
      if (cancelled && cancelled()) {
        ::close(fd_);
        fail({.code = ErrorCode::kFile, .what = "the download was interrupted", .where = source.name});
      }
    }
    resumed_ = size_ > 0;
    if (::ftruncate(fd_, static_cast<off_t>(size_)) != 0) fail_io("the file cannot be written", path_);
  }
  ~Beginning() { ::close(fd_); }
  Beginning(const Beginning&) = delete;
  Beginning& operator=(const Beginning&) = delete;

  uint64_t size() const { return size_; }
  bool resumed() const { return resumed_; }  // holds bytes of an earlier try
  void restart() {
    size_ = 0;
    resumed_ = false;
    hash_ = std::make_unique<BlobHash>(source_.hash, source_.size);
    if (::ftruncate(fd_, 0) != 0) fail_io("the file cannot be written", path_);
  }
  void append(std::string_view bytes) {
    hash_->update(bytes.data(), bytes.size());
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_io("the file cannot be written", path_);
      bytes.remove_prefix(static_cast<size_t>(n));
      size_ += static_cast<uint64_t>(n);
    }
  }
  std::string finish() {
    if (::fsync(fd_) != 0) fail_io("the file cannot be written", path_);
    return hash_->finish();
  }

 private:
  fs::path path_;
  const DownloadSource& source_;
  int fd_ = -1;
  uint64_t size_ = 0;
  bool resumed_ = false;
  std::unique_ptr<BlobHash> hash_;
};

struct Piece {
  uint64_t begin = 0, end = 0;
  std::string bytes = {};  // arrived, not yet written; the first piece's are written as they come
  uint64_t arrived = 0;
  bool active = false;
  Clock::time_point not_before = {};
  bool whole() const { return begin + arrived == end; }
};

// "bytes 0-99/1234" → 0 and 1234; false for anything else.
bool read_content_range(const std::string& text, uint64_t& begin, uint64_t& size) {
  unsigned long long first = 0, last = 0, all = 0;
  if (std::sscanf(text.c_str(), "bytes %llu-%llu/%llu", &first, &last, &all) != 3) return false;
  begin = first;
  size = all;
  return true;
}

class Download {
 public:
  Download(HttpClient& client, const DownloadSource& source, Beginning& file, const DownloadOptions& options)
      : client_(client), source_(source), file_(file), options_(options), url_(source.url), next_(file.size()) {}
  ~Download() { client_.drop_all(); }

  void run() {
    while (file_.size() < source_.size) {
      if (options_.cancelled && options_.cancelled()) {
        fail({.code = ErrorCode::kFile,
              .what = "the download was interrupted",
              .where = source_.name,
              .got = fmt::format("{} of {} bytes", file_.size(), source_.size),
              .todo = "The same command goes on where it stopped"});
      }
      start_pieces();
      client_.wait();
      if (restart_) restart();
      write_out();
    }
  }

 private:
  void start_pieces() {
    const auto connections = static_cast<size_t>(ranges_ ? options_.connections : 1);
    while (next_ < source_.size && pieces_.size() < 2 * connections) {
      const uint64_t end = ranges_ ? std::min(next_ + options_.piece_bytes, source_.size) : source_.size;
      pieces_.push_back({.begin = next_, .end = end});
      next_ = end;
    }
    size_t active = 0;
    for (const Piece& piece : pieces_) active += piece.active;
    const auto now = Clock::now();
    bool started = active > 0;
    for (Piece& piece : pieces_) {
      if (active >= connections) break;
      if (piece.active || piece.whole() || piece.not_before > now) continue;
      start(piece);
      started = true;
      ++active;
    }
    if (!started) ::usleep(5000);  // all of them pause
  }

  void start(Piece& piece) {
    piece.active = true;
    const uint64_t from = piece.begin + piece.arrived;
    HttpRequest request{.url = url_, .token = url_ == source_.url ? source_.token : ""};
    const bool all = from == 0 && piece.end == source_.size;
    if (!all) request.range = fmt::format("{}-{}", from, piece.end - 1);
    if (!all && source_.hash.empty() && source_.etag.starts_with('"')) request.if_range = source_.etag;
    const uint64_t generation = generation_;
    bool checked = false;
    request.on_body = [this, &piece, from, all, checked](const HttpAnswer& head, std::string_view bytes) mutable {
      if (!checked && !check_head(head, from, all)) return false;
      checked = true;
      if (bytes.size() > piece.end - piece.begin - piece.arrived) {
        fault_ = "more bytes than were asked for";
        return false;
      }
      piece.bytes += bytes;
      piece.arrived += bytes.size();
      failures_ = 0;
      if (options_.progress) options_.progress(bytes.size());
      return true;
    };
    client_.start(std::move(request), [this, &piece, generation](HttpAnswer answer) {
      if (generation == generation_) ended(piece, std::move(answer));
    });
  }

  // Is this the part that was asked for? A server that knows no ranges sends everything.
  bool check_head(const HttpAnswer& head, uint64_t from, bool all) {
    if (head.status == 206) {
      uint64_t begin = 0, size = 0;
      if (!read_content_range(head.header("content-range"), begin, size) || begin != from) {
        fault_ = "another part of the file than was asked for";
        return false;
      }
      if (size != source_.size) changed_ = fmt::format("{} bytes", size);
      return size == source_.size;
    }
    if (all) return true;
    restart_ = true;
    return false;
  }

  void ended(Piece& piece, HttpAnswer answer) {
    piece.active = false;
    if (answer.status == 416 && changed_.empty()) changed_ = "a file that ends before";
    if (!changed_.empty()) {
      fail({.code = ErrorCode::kFormat,
            .what = "the file has another length than was announced",
            .where = source_.name,
            .expected = fmt::format("{} bytes", source_.size),
            .got = changed_,
            .todo = "Try again; it may just have been replaced"});
    }
    // The next pieces come from where this one did, without asking the hub for each.
    const bool elsewhere = !parse_url(answer.url).same_origin(parse_url(source_.url));
    if (answer.ok() && elsewhere) url_ = answer.url;
    if (restart_ || piece.whole()) return;
    if (answer.ok()) {
      fault_ = fmt::format("{} bytes fewer than were asked for", piece.end - piece.begin - piece.arrived);
    }
    // A signed address has a date on it: ask the hub for another one.
    const bool ran_out = elsewhere && answer.status >= 400 && answer.status < 500;
    if (ran_out) url_ = source_.url;
    if (!ran_out && answer.status >= 400 && !is_passing_fault(answer)) {
      fail({.code = ErrorCode::kFile,
            .what = "the server refused the file",
            .where = source_.name,
            .got = fmt::format("HTTP {}", answer.status),
            .todo = answer.status == 401 || answer.status == 403 ? "Check HF_TOKEN and the model's page" : ""});
    }
    const double asked = retry_after(answer);
    if (++failures_ >= options_.attempts || asked > options_.longest_pause) {
      std::string got = answer.status >= 400   ? fmt::format("HTTP {}", answer.status)
                        : !fault_.empty()      ? fault_
                        : answer.fault.empty() ? "nothing"
                                               : answer.fault;
      if (asked > options_.longest_pause) got += fmt::format(", to be asked again in {:.0f} s", asked);
      fail({.code = ErrorCode::kFile,
            .what = "the download does not get on",
            .where = source_.name,
            .expected = fmt::format("{} bytes", source_.size),
            .got = fmt::format("{} bytes, then {}", file_.size(), got),
            .todo = "The same command goes on where it stopped"});
    }
    fault_.clear();
    const double pause =
        std::max(asked, std::min(options_.longest_pause, options_.first_pause * (1 << std::min(failures_ - 1, 16))));
    const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(pause));
    piece.not_before = until;
    if (asked >= 0) {  // it means all of them
      for (Piece& other : pieces_) other.not_before = std::max(other.not_before, until);
    }
  }

  void restart() {
    client_.drop_all();
    ++generation_;
    restart_ = ranges_ = false;
    pieces_.clear();
    file_.restart();
    next_ = 0;
  }

  // In order, so that the file is its own beginning at every moment.
  void write_out() {
    while (!pieces_.empty()) {
      Piece& piece = pieces_.front();
      file_.append(piece.bytes);
      piece.bytes.clear();
      if (!piece.whole() || piece.active) return;
      pieces_.pop_front();
    }
  }

  HttpClient& client_;
  const DownloadSource& source_;
  Beginning& file_;
  const DownloadOptions& options_;
  std::string url_;  // where pieces come from
  uint64_t next_;    // the first byte that no piece has
  std::deque<Piece> pieces_;
  bool ranges_ = true, restart_ = false;
  uint64_t generation_ = 0;
  int failures_ = 0;
  std::string fault_, changed_;
};

}  // namespace

double retry_after(const HttpAnswer& answer) {
  const std::string value = answer.header("retry-after");
  if (value.empty()) return -1;
  char* end = nullptr;
  const double seconds = std::strtod(value.c_str(), &end);
  if (*end == 0) return std::max(0.0, seconds);
  tm date{};
  if (!::strptime(value.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &date)) return -1;
  return std::max(0.0, std::difftime(::timegm(&date), ::time(nullptr)));
}

bool is_passing_fault(const HttpAnswer& answer) {
  return answer.status < 400 || answer.status == 408 || answer.status == 429 || answer.status >= 500;
}

void download(HttpClient& client, const DownloadSource& source, const fs::path& target,
              const DownloadOptions& options) {
  fs::path incomplete = target;
  incomplete += ".incomplete";
  for (bool again = true;; again = false) {
    Beginning file(incomplete, source, options.cancelled);
    const bool resumed = file.resumed();
    Download(client, source, file, options).run();
    const std::string hash = file.finish();
    if (source.hash.empty() || hash == source.hash) break;
    ::unlink(incomplete.c_str());
    if (resumed && again) continue;  // what another program left may have been no beginning: once from the start
    fail({.code = ErrorCode::kFormat,
          .what = "what arrived is not the file that was announced, and was thrown away",
          .where = source.name,
          .expected = (source.hash.size() == 40 ? "SHA-1 " : "SHA-256 ") + source.hash,
          .got = hash,
          .todo = "Try again; if it stays so, something between here and the hub changes files"});
  }
  if (::rename(incomplete.c_str(), target.c_str()) != 0) fail_io("the file cannot take its name", target);
  const int folder = ::open(target.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
}

}  // namespace doppler
