#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <new>

#include "base/error.h"
#include "base/files.h"
#include "format/gguf.h"
#include "format/rdrr.h"
#include "format/shard_hash.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

// Kernels read plain floats through typed pointers; quantised blocks are read bytewise but begin on the same grain.
constexpr uintptr_t kReadAlignment = 4;

struct Source {
  fs::path folder, manifest;
};

Source locate(const fs::path& path) {
  const bool inside = is_folder(path);
  const fs::path folder = inside ? path : path.parent_path();
  const fs::path manifest = inside ? path / "manifest.json" : path;
  if (!file_exists(path)) {
    fail({.code = ErrorCode::kFile,
          .what = "there is no model here",
          .where = path.string(),
          .expected = "a folder with manifest.json",
          .todo = "Check the path"});
  }
  if (is_gguf(path)) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "this is a GGUF file, not an artefact",
          .where = path.string(),
          .expected = "a folder with manifest.json",
          .todo = "Convert it first: doppler convert " + path.string() + " DST"});
  }
  if (!file_exists(manifest)) {
    const bool checkpoint = file_exists(folder / "config.json");
    fail({.code = ErrorCode::kFormat,
          .what = "the folder is not an artefact",
          .where = path.string(),
          .expected = "manifest.json in it",
          .got = checkpoint ? "a Hugging Face checkpoint" : "",
          .todo = checkpoint ? "Convert it first: doppler convert " + path.string() + " DST" : "Check the path"});
  }
  return {folder, manifest};
}

RdrrManifest load_manifest(const Source& source) {
  const std::string where = source.manifest.string();
  Json manifest = parse_json(read_text_file(source.manifest), where);
  const std::string file = manifest.is_object() ? string_or(manifest, "tensorsFile", "", where) : "";
  if (file.empty() || find(manifest, "tensors")) return parse_rdrr_manifest(std::move(manifest), nullptr, where);
  if (file.find_first_of("/\\") != std::string::npos) {
    fail({.code = ErrorCode::kFormat, .what = "tensorsFile is not a plain file name", .where = where, .got = file});
  }
  const fs::path path = source.folder / file;
  const Json tensors = parse_json(read_text_file(path), path.string());
  return parse_rdrr_manifest(std::move(manifest), &tensors, path.string());
}

// Missing shards and shards of another size than the manifest says.
std::vector<std::string> shard_faults(const Source& source, const RdrrManifest& manifest) {
  std::vector<std::string> faults;
  for (const RdrrShard& shard : manifest.shards) {
    std::error_code ec;
    const fs::path path = source.folder / shard.filename;
    const auto size = fs::file_size(path, ec);
    if (ec) {
      faults.push_back(fmt::format("{} is missing or unreadable ({})", shard.filename, ec.message()));
    } else if (size != shard.size) {
      faults.push_back(fmt::format("{} has {} bytes, but the manifest says {}{}", shard.filename, size, shard.size,
                                   size < shard.size ? ": it is truncated" : ""));
    }
  }
  return faults;
}

}  // namespace

// The address range that holds all shards, each at a page border, and copies of the tensors that cannot be read there.
struct RdrrReader::Mapping {
  std::byte* base = nullptr;
  size_t size = 0;
  std::vector<size_t> start;  // of each shard, from base
  std::map<std::string, std::unique_ptr<std::byte[]>> copies;
  uint64_t copied = 0;

  ~Mapping() {
    if (!base) return;
    for (const size_t at : start) unregister_mapped_range(base + at);
    ::munmap(base, size);
  }

  void map(const fs::path& folder, const std::vector<RdrrShard>& shards) {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    for (const RdrrShard& shard : shards) {
      start.push_back(size);
      size += (shard.size + page - 1) / page * page;
    }
    void* reserved = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) {
      fail({.code = ErrorCode::kMemory,
            .what = "the artefact does not fit in the address space",
            .where = folder.string(),
            .got = fmt::format("{} bytes", size)});
    }
    base = static_cast<std::byte*>(reserved);
    for (size_t i = 0; i < shards.size(); ++i) {
      const fs::path path = folder / shards[i].filename;
      const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not make it wait
      int error_number = fd < 0 ? errno : 0;
      // Measured again on the open file: a shard that shrank since must not become a fault in the middle of a token.
      struct stat status {};
      const bool sound = fd >= 0 && ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
                         static_cast<uint64_t>(status.st_size) == shards[i].size;
      const bool mapped =
          sound && ::mmap(base + start[i], shards[i].size, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) != MAP_FAILED;
      if (sound && !mapped) error_number = errno;
      if (fd >= 0) ::close(fd);
      if (!mapped) {
        fail({.code = ErrorCode::kFile,
              .what = "a shard cannot be mapped into memory",
              .where = path.string(),
              .got = error_number != 0 ? std::strerror(error_number) : "a file of another size"});
      }
      const size_t end = i + 1 < shards.size() ? start[i + 1] : size;
      register_mapped_range({base + start[i], end - start[i]}, path);
    }
  }

  const std::byte* at(const RdrrSpan& span) const {
    return base + start[static_cast<size_t>(span.shard)] + span.offset;
  }

  // Where the tensor's first byte lies if all its spans follow each other in memory, else null.
  const std::byte* contiguous(const RdrrTensorEntry& entry) const {
    const std::byte* expected = at(entry.spans.front());
    for (const RdrrSpan& span : entry.spans) {
      if (at(span) != expected) return nullptr;
      expected += span.size;
    }
    const bool aligned = reinterpret_cast<uintptr_t>(at(entry.spans.front())) % kReadAlignment == 0;
    return aligned ? at(entry.spans.front()) : nullptr;
  }

  void copy(const RdrrTensorEntry& entry) {
    std::unique_ptr<std::byte[]> bytes(new (std::nothrow) std::byte[entry.size]);
    if (!bytes) {
      fail({.code = ErrorCode::kMemory,
            .what = "a tensor in pieces does not fit in memory",
            .where = entry.name,
            .got = fmt::format("{} bytes", entry.size)});
    }
    size_t done = 0;
    for (const RdrrSpan& span : entry.spans) {
      std::memcpy(bytes.get() + done, at(span), span.size);
      done += span.size;
    }
    copied += entry.size;
    copies[entry.name] = std::move(bytes);
  }
};

RdrrReader::RdrrReader(RdrrReader&&) noexcept = default;
RdrrReader& RdrrReader::operator=(RdrrReader&&) noexcept = default;
RdrrReader::~RdrrReader() = default;

RdrrReader RdrrReader::open(const fs::path& path) {
  const Source source = locate(path);
  RdrrReader reader;
  reader.folder_ = source.folder;
  reader.manifest_ = load_manifest(source);
  std::vector<std::string> faults = reader.manifest_.faults;
  for (std::string& fault : shard_faults(source, reader.manifest_)) faults.push_back(std::move(fault));
  if (!faults.empty()) {
    const std::string more = faults.size() > 1 ? fmt::format("; and {} more", faults.size() - 1) : "";
    fail({.code = ErrorCode::kFormat,
          .what = "the artefact is damaged: " + faults.front() + more,
          .where = path.string(),
          .todo = "List all faults with: doppler verify " + path.string()});
  }
  reader.mapping_ = std::make_unique<Mapping>();
  reader.mapping_->map(source.folder, reader.manifest_.shards);
  for (const RdrrTensorEntry& entry : reader.manifest_.tensors) {
    if (!reader.mapping_->contiguous(entry)) reader.mapping_->copy(entry);
  }
  return reader;
}

const RdrrTensorEntry* RdrrReader::find_slot(std::string_view slot) const {
  for (const RdrrTensorEntry& entry : manifest_.tensors) {
    if (entry.slot == slot) return &entry;
  }
  return nullptr;
}

Tensor RdrrReader::tensor(const RdrrTensorEntry& entry) const {
  const auto copy = mapping_->copies.find(entry.name);
  const std::byte* bytes = copy != mapping_->copies.end() ? copy->second.get() : mapping_->contiguous(entry);
  return {entry.name, entry.dtype, entry.shape, {bytes, entry.size}};
}

uint64_t RdrrReader::copied_bytes() const { return mapping_->copied; }

std::vector<std::string> RdrrReader::verify(const fs::path& path, bool hashes,
                                            const std::function<void(uint64_t, uint64_t)>& progress) {
  const Source source = locate(path);
  const RdrrManifest manifest = load_manifest(source);
  std::vector<std::string> faults = manifest.faults;
  for (std::string& fault : shard_faults(source, manifest)) faults.push_back(std::move(fault));
  if (!hashes) return faults;
  if (!ShardHash::knows(manifest.hash_algorithm)) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "the shards' hashes cannot be checked",
          .where = source.manifest.string(),
          .expected = "sha256 or blake3",
          .got = manifest.hash_algorithm,
          .todo = "Structure and sizes can be checked without them: doppler verify --no-hashes"});
  }
  uint64_t all = 0, done = 0;
  for (const RdrrShard& shard : manifest.shards) all += shard.size;
  std::vector<std::byte> piece(1 << 20);
  for (const RdrrShard& shard : manifest.shards) {
    if (!is_file(source.folder / shard.filename)) continue;  // already in the list
    FileReader file(source.folder / shard.filename);  // not mapped: bytes that cannot be read are what is looked for
    ShardHash hash(manifest.hash_algorithm);
    while (const size_t n = file.read(piece)) {
      hash.update(std::span(piece).first(n));
      done += n;
      if (progress) progress(std::min(done, all), all);
    }
    if (hash.finish(shard.hash) != shard.hash) {
      faults.push_back(fmt::format("{} has another {} than the manifest says: its bytes have changed", shard.filename,
                                   manifest.hash_algorithm));
    }
  }
  return faults;
}

}  // namespace doppler
