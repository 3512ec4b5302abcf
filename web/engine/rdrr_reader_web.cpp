// An artefact whose shards stay in the host's storage: a tensor reads its rows from there when somebody wants them.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "format/rdrr.h"
#include "host.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

// The pieces of one tensor, end to end.
class ShardSource : public TensorSource {
 public:
  ShardSource(const RdrrTensorEntry& entry, const std::vector<RdrrShard>& shards) : size_(entry.size) {
    for (const RdrrSpan& span : entry.spans) {
      pieces_.push_back({shards[static_cast<size_t>(span.shard)].filename, span.offset, span.size});
    }
  }
  uint64_t size() const override { return size_; }

  void read(uint64_t offset, std::span<std::byte> out) const override {
    for (const Piece& piece : pieces_) {
      if (offset >= piece.size) {
        offset -= piece.size;
        continue;
      }
      const auto bytes = static_cast<size_t>(std::min<uint64_t>(piece.size - offset, out.size()));
      host_file_read(piece.file.data(), static_cast<uint32_t>(piece.file.size()),
                     static_cast<double>(piece.offset + offset), out.data(), static_cast<uint32_t>(bytes));
      out = out.subspan(bytes);
      if (out.empty()) return;
      offset = 0;
    }
    fail({.code = ErrorCode::kInternal, .what = "a read leaves its tensor"});
  }

 private:
  struct Piece {
    std::string file;
    uint64_t offset, size;
  };
  std::vector<Piece> pieces_;
  uint64_t size_;
};

RdrrManifest load_manifest(const fs::path& folder) {
  const std::string where = "manifest.json";
  Json manifest = parse_json(read_text_file(folder / where), where);
  const std::string file = manifest.is_object() ? string_or(manifest, "tensorsFile", "", where) : "";
  if (file.empty() || find(manifest, "tensors")) return parse_rdrr_manifest(std::move(manifest), nullptr, where);
  const Json tensors = parse_json(read_text_file(folder / file), file);
  return parse_rdrr_manifest(std::move(manifest), &tensors, file);
}

}  // namespace

struct RdrrReader::Mapping {};

RdrrReader::RdrrReader(RdrrReader&&) noexcept = default;
RdrrReader& RdrrReader::operator=(RdrrReader&&) noexcept = default;
RdrrReader::~RdrrReader() = default;

RdrrReader RdrrReader::open(const fs::path& path) {
  RdrrReader reader;
  reader.folder_ = path;
  reader.manifest_ = load_manifest(path);
  std::vector<std::string> faults = reader.manifest_.faults;
  for (const RdrrShard& shard : reader.manifest_.shards) {
    const double size = host_file_size(shard.filename.data(), static_cast<uint32_t>(shard.filename.size()));
    if (size != static_cast<double>(shard.size)) {
      faults.push_back(fmt::format("{} has {} bytes, but the manifest says {}", shard.filename, size, shard.size));
    }
  }
  if (!faults.empty()) {
    const std::string more = faults.size() > 1 ? fmt::format("; and {} more", faults.size() - 1) : "";
    fail({.code = ErrorCode::kFormat,
          .what = "the artefact is damaged: " + faults.front() + more,
          .where = path.string(),
          .todo = "Delete the stored model and download it again"});
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
  return {entry.name, entry.dtype, entry.shape, {}, std::make_shared<ShardSource>(entry, manifest_.shards)};
}

}  // namespace doppler
