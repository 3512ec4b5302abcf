#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "format/rdrr.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

// The public format's word for a dtype. Its Q4_K_M is what everybody else calls Q4_K.
std::string public_name(DType dtype) { return dtype == DType::kQ4_K ? "Q4_K_M" : std::string(name_of(dtype)); }

// The public format's word for the part of a model that a tensor belongs to.
std::string group_of(const std::string& slot) {
  constexpr std::string_view kLayer = "layer";
  const size_t dot = slot.find('.');
  if (slot.starts_with(kLayer) && dot != std::string::npos)
    return "layer." + slot.substr(kLayer.size(), dot - kLayer.size());
  if (slot == "embed") return "embed";
  if (slot == "per_layer_embed") return "per_layer_input";
  return slot == "final_norm" || slot == "lm_head" ? "head" : "other";
}

Json describe_tensor(const RdrrTensorEntry& entry) {
  Json out = {{"shard", entry.spans.front().shard},
              {"offset", entry.spans.front().offset},
              {"size", entry.size},
              {"shape", entry.shape},
              {"dtype", public_name(entry.dtype)},
              {"role", entry.role},
              {"group", group_of(entry.slot)},
              {"layout", "row"},
              {"slot", entry.slot}};
  if (entry.spans.size() > 1) {
    Json& spans = out["spans"] = Json::array();
    for (const RdrrSpan& span : entry.spans) {
      spans.push_back({{"shardIndex", span.shard}, {"offset", span.offset}, {"size", span.size}});
    }
  }
  return out;
}

bool of_an_artefact(const std::string& name) {
  return name == "manifest.json" || name == "tensors.json" || name.ends_with(".bin") ||
         std::find(std::begin(kRdrrSidecars), std::end(kRdrrSidecars), name) != std::end(kRdrrSidecars);
}

// What somebody else put beside the old artefact (a card, a licence) goes along to the new one.
void keep_foreign_files(const fs::path& from, const fs::path& to) {
  const auto check = [](const fs::path& path, const std::error_code& fault) {
    if (!fault) return;
    fail({.code = ErrorCode::kFile,
          .what = "a file beside the old artefact cannot be kept",
          .where = path.string(),
          .got = fault.message(),
          .todo = "Move it elsewhere, or choose another name for the new artefact"});
  };
  std::error_code ec;
  fs::directory_iterator item(from, ec);
  if (ec == std::errc::no_such_file_or_directory) return;
  for (const fs::directory_iterator end; !ec && item != end; item.increment(ec)) {
    const fs::path path = item->path(), kept = to / path.filename();
    std::error_code fault;
    if (of_an_artefact(path.filename().string()) || fs::exists(kept, fault)) continue;
    check(path, fault);
    fs::copy(path, kept, fs::copy_options::recursive | fs::copy_options::copy_symlinks, fault);
    check(path, fault);
  }
  check(from, ec);  // a list that was cut short would lose what is not on it
}

}  // namespace

RdrrWriter::RdrrWriter(const fs::path& folder, uint64_t shard_size)
    : final_(folder.filename().empty() ? folder.parent_path() : folder), folder_(final_), shard_size_(shard_size) {
  if (shard_size == 0 || shard_size % kRdrrShardGrain != 0 || shard_size > (1ull << 40)) {
    fail({.code = ErrorCode::kUsage,
          .what = "the shard size cannot be used",
          .where = folder.string(),
          .expected = fmt::format("a multiple of {} bytes", kRdrrShardGrain),
          .got = std::to_string(shard_size)});
  }
}

RdrrWriter::~RdrrWriter() = default;

const fs::path& RdrrWriter::path() const { return folder_.path(); }

void RdrrWriter::begin(RdrrTensorEntry entry) {
  if (open_)
    fail({.code = ErrorCode::kInternal, .what = "a tensor begins before the last one ended", .where = entry.name});
  static constexpr std::byte kZeros[kRdrrAlignment] = {};
  put(std::span(kZeros).first((kRdrrAlignment - position_ % kRdrrAlignment) % kRdrrAlignment));
  entry.spans.clear();
  entry.size = 0;
  tensors_.push_back(std::move(entry));
  open_ = true;
}

void RdrrWriter::write(std::span<const std::byte> bytes) {
  if (!open_) fail({.code = ErrorCode::kInternal, .what = "bytes outside a tensor", .where = final_.string()});
  RdrrTensorEntry& entry = tensors_.back();
  entry.size += bytes.size();
  while (!bytes.empty()) {
    const uint64_t offset = position_ % shard_size_;
    const int shard = static_cast<int>(position_ / shard_size_);
    const auto part = bytes.first(std::min<uint64_t>(bytes.size(), shard_size_ - offset));
    if (entry.spans.empty() || entry.spans.back().shard != shard) entry.spans.push_back({shard, offset, 0});
    entry.spans.back().size += part.size();
    put(part);
    bytes = bytes.subspan(part.size());
  }
}

void RdrrWriter::end() {
  const RdrrTensorEntry& entry = tensors_.back();
  const uint64_t expected = entry.weights() / static_cast<uint64_t>(entry.shape.back()) *
                            row_bytes(entry.dtype, static_cast<size_t>(entry.shape.back()));
  if (!open_ || entry.size != expected) {
    fail({.code = ErrorCode::kInternal,
          .what = "a tensor got the wrong number of bytes",
          .where = entry.name,
          .expected = std::to_string(expected),
          .got = std::to_string(entry.size)});
  }
  open_ = false;
}

void RdrrWriter::put(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (!shard_) {
      const std::string name = fmt::format("shard_{:05}.bin", shards_.size());
      shards_.push_back({name, 0, ""});
      shard_ = std::make_unique<FileWriter>(folder_.path() / name);
      hash_ = std::make_unique<Sha256>();
    }
    const auto part = bytes.first(std::min<uint64_t>(bytes.size(), shard_size_ - position_ % shard_size_));
    shard_->write(part);
    hash_->update(part);
    shards_.back().size += part.size();
    position_ += part.size();
    bytes = bytes.subspan(part.size());
    if (position_ % shard_size_ == 0) close_shard();
  }
}

void RdrrWriter::close_shard() {
  if (!shard_) return;
  shards_.back().hash = hash_->finish();
  shard_->commit();
  shard_.reset();
  hash_.reset();
}

void RdrrWriter::commit(Json manifest, bool replace) {
  close_shard();
  Json shards = Json::array();
  uint64_t offset = 0;
  for (size_t i = 0; i < shards_.size(); ++i) {
    const RdrrShard& shard = shards_[i];
    shards.push_back(
        {{"index", i}, {"filename", shard.filename}, {"size", shard.size}, {"hash", shard.hash}, {"offset", offset}});
    offset += shard.size;
  }
  Json tensors = Json::object();
  for (const RdrrTensorEntry& entry : tensors_) tensors[entry.name] = describe_tensor(entry);
  manifest["hashAlgorithm"] = "sha256";
  manifest["totalSize"] = offset;
  manifest["shards"] = std::move(shards);
  manifest["tensorCount"] = tensors_.size();
  manifest["tensors"] = std::move(tensors);
  manifest.erase("tensorsFile");
  write_file_whole(folder_.path() / "manifest.json", manifest.dump(1) + "\n");

  if (replace) keep_foreign_files(final_, folder_.path());
  folder_.commit(replace);
}

}  // namespace doppler
