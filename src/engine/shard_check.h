// An artefact's bytes against the hashes in its manifest. Each shard is read for it once: what its hash was is
// remembered by path, size, time of change and inode, and holds until one of them is another.
#pragma once

#include <atomic>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "format/rdrr.h"

namespace doppler {

// Hashes of files, kept in a file of the user's cache. One that is not there, cannot be read or is spoilt knows
// nothing; one that cannot be written is left as it is.
class HashRecord {
 public:
  struct File {
    std::string path;  // absolute, without links
    uint64_t size = 0, device = 0, inode = 0;
    int64_t changed_ns = 0;  // time of the last change
    bool operator==(const File&) const = default;
  };
  explicit HashRecord(std::filesystem::path path);

  static std::optional<File> file(const std::filesystem::path& path);  // as it is now
  std::string find(const File& file) const;                            // its hash; empty if it is not known
  void add(File file, std::string hash);
  void write() const;  // without files that are gone or have changed

 private:
  struct Entry {
    File file;
    std::string hash;
  };
  std::filesystem::path path_;
  std::vector<Entry> entries_;  // the oldest first
};

std::filesystem::path hash_record_path();  // in the user's cache

class ShardCheck {
 public:
  // Threads begin to read the shards that `record` does not know. The reader must outlive it. Does nothing where the
  // hashes are of a kind that ShardHash does not know.
  ShardCheck(const RdrrReader& artefact, std::filesystem::path record);
  ~ShardCheck();  // leaves off where it is
  ShardCheck(const ShardCheck&) = delete;
  ShardCheck& operator=(const ShardCheck&) = delete;

  // Waits for them, and remembers; fails if a shard's bytes are not those that the manifest was written for.
  void finish();
  uint64_t bytes_read() const { return read_; }

 private:
  void hash_files();
  void hash_file(size_t shard);

  const RdrrReader& artefact_;
  HashRecord record_;
  std::vector<size_t> unknown_;  // shards
  std::vector<std::thread> threads_;
  std::atomic<size_t> next_ = 0;
  std::atomic<uint64_t> read_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  bool learned_ = false;  // the record has something new
  std::optional<Error> error_;
};

}  // namespace doppler
