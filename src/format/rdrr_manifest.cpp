// Reading manifest.json: every number that places a tensor is checked before anything believes it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_set>

#include "base/error.h"
#include "format/rdrr.h"

namespace doppler {
namespace {

// Larger than any artefact, small enough that sums of two never overflow.
constexpr uint64_t kLargest = 1ull << 50;
constexpr size_t kMaxShards = 1 << 20;

// A size or place: a whole number from 0 to kLargest. Anything else fails.
uint64_t require_size(const Json& object, std::string_view key, const std::string& where) {
  const int64_t value = require_int(object, key, where);
  if (value < 0 || static_cast<uint64_t>(value) > kLargest) {
    fail({.code = ErrorCode::kFormat,
          .what = "a size is out of range",
          .where = where + ": " + std::string(key),
          .expected = fmt::format("0 to {}", kLargest),
          .got = brief(*find(object, key))});
  }
  return static_cast<uint64_t>(value);
}

// A shard's name becomes a path here and in a page's storage, beside the manifest, the tokenizer's files and the page's
// own NAME.part and info.json.
void check_shard_name(const std::string& name, const Json& manifest, const std::string& where) {
  const bool plain = !name.empty() && name != "." && name != ".." && name.find_first_of("/\\") == std::string::npos &&
                     std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; });
  if (!plain) {
    fail({.code = ErrorCode::kFormat,
          .what = "a shard's name is not a plain file name",
          .where = where,
          .got = brief(Json(name))});
  }
  const bool reserved = name.ends_with(".json") || name.ends_with(".jinja") || name.ends_with(".part") ||
                        name == string_or(manifest, "tensorsFile", "", where);
  if (reserved) {
    fail({.code = ErrorCode::kFormat,
          .what = "a shard has a name that belongs to another file of the artefact",
          .where = where,
          .expected = "a name such as shard_00000.bin",
          .got = name});
  }
}

std::vector<RdrrShard> read_shards(const Json& manifest, const std::string& where, std::vector<std::string>& faults) {
  std::vector<RdrrShard> shards;
  std::unordered_set<std::string> names;
  uint64_t total = 0;
  const Json& list = require_array(manifest, "shards", where);
  if (list.empty() || list.size() > kMaxShards) {
    fail({.code = ErrorCode::kFormat,
          .what = "the number of shards is out of range",
          .where = where,
          .expected = fmt::format("1 to {}", kMaxShards),
          .got = std::to_string(list.size())});
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string at = fmt::format("{}: shards[{}]", where, i);
    const Json& item = list[i];
    RdrrShard shard;
    shard.filename =
        find(item, "fileName") ? require_string(item, "fileName", at) : require_string(item, "filename", at);
    shard.size = require_size(item, "size", at);
    shard.hash = find(item, "hash") ? require_string(item, "hash", at) : string_or(item, "blake3", "", at);
    check_shard_name(shard.filename, manifest, at);
    if (!names.insert(shard.filename).second) {
      fail({.code = ErrorCode::kFormat,
            .what = "two shards have the same name",
            .where = at,
            .expected = "every shard once",
            .got = shard.filename});
    }
    if (shard.size == 0) faults.push_back(fmt::format("{} is empty", shard.filename));
    if (static_cast<uint64_t>(int_or(item, "index", static_cast<int64_t>(i), at)) != i) {
      faults.push_back(fmt::format("{} says it is shard {}, but stands at place {}", shard.filename,
                                   brief(*find(item, "index")), i));
    }
    if (find(item, "offset") && require_size(item, "offset", at) != total) {
      faults.push_back(fmt::format("{} says it begins at byte {}, but the shards before it end at {}", shard.filename,
                                   brief(*find(item, "offset")), total));
    }
    total += shard.size;
    if (total > kLargest) fail({.code = ErrorCode::kFormat, .what = "the shards are absurdly large", .where = where});
    shards.push_back(std::move(shard));
  }
  if (find(manifest, "totalSize") && require_size(manifest, "totalSize", where) != total) {
    faults.push_back(
        fmt::format("totalSize is {}, but the shards add up to {}", brief(*find(manifest, "totalSize")), total));
  }
  return shards;
}

std::vector<int64_t> read_shape(const Json& item, const std::string& where) {
  std::vector<int64_t> shape;
  uint64_t weights = 1;
  for (const Json& n : require_array(item, "shape", where)) {
    const int64_t dim = n.is_number_integer() ? n.get<int64_t>() : -1;
    if (dim < 1 || static_cast<uint64_t>(dim) > kLargest ||
        __builtin_mul_overflow(weights, static_cast<uint64_t>(dim), &weights) || weights > kLargest) {
      fail({.code = ErrorCode::kFormat,
            .what = "a tensor's shape is out of range",
            .where = where,
            .expected = "positive whole numbers",
            .got = brief(*find(item, "shape"))});
    }
    shape.push_back(dim);
  }
  if (shape.empty()) shape.push_back(1);  // a scalar
  if (shape.size() > 8) {
    fail({.code = ErrorCode::kFormat,
          .what = "a tensor may have eight dimensions at most",
          .where = where,
          .got = std::to_string(shape.size())});
  }
  return shape;
}

std::vector<RdrrSpan> read_spans(const Json& item, const std::vector<RdrrShard>& shards, const std::string& where,
                                 const std::string& name, std::vector<std::string>& faults) {
  std::vector<RdrrSpan> spans;
  const auto add = [&](const Json& place, const char* shard_key, const std::string& at) {
    const uint64_t shard = require_size(place, shard_key, at);
    const RdrrSpan span{static_cast<int>(std::min<uint64_t>(shard, kMaxShards)), require_size(place, "offset", at),
                        require_size(place, "size", at)};
    if (shard >= shards.size()) {
      faults.push_back(fmt::format("{} lies in shard {}, but there are only {}", name, shard, shards.size()));
    } else if (span.offset + span.size > shards[shard].size) {
      faults.push_back(fmt::format("{} lies past the end of {}: bytes {} to {} of {}", name, shards[shard].filename,
                                   span.offset, span.offset + span.size, shards[shard].size));
    }
    spans.push_back(span);
  };
  const Json* list = find(item, "spans");
  if (list && list->is_array() && !list->empty()) {
    for (size_t i = 0; i < list->size(); ++i) add((*list)[i], "shardIndex", fmt::format("{}: spans[{}]", where, i));
  } else {
    add(item, "shard", where);
  }
  return spans;
}

// The bytes the shape and dtype call for, row by row; a sentence where the tensor has others.
void check_size(const RdrrTensorEntry& entry, std::vector<std::string>& faults) {
  const auto cols = static_cast<uint64_t>(entry.shape.back());
  const uint64_t rows = entry.weights() / cols;
  const auto block = static_cast<uint64_t>(info(entry.dtype).block_weights);
  const auto block_bytes = static_cast<uint64_t>(info(entry.dtype).block_bytes);
  uint64_t expected = 0;
  const bool fits = !__builtin_mul_overflow((cols + block - 1) / block * block_bytes, rows, &expected);
  if (fits && entry.size == expected) return;
  const uint64_t flat = (entry.weights() + block - 1) / block * block_bytes;
  if (entry.size == flat) {
    faults.push_back(fmt::format(
        "{} is one flat stream of {} blocks ({} bytes), but rows of {} weights must each begin a block ({} bytes); "
        "convert the model again from its source",
        entry.name, name_of(entry.dtype), entry.size, cols, expected));
  } else {
    faults.push_back(fmt::format("{} has {} bytes, but [{}] in {} takes {}", entry.name, entry.size,
                                 fmt::join(entry.shape, ", "), name_of(entry.dtype), expected));
  }
}

void check_overlap(const std::vector<RdrrTensorEntry>& tensors, std::vector<std::string>& faults) {
  struct Place {
    RdrrSpan span;
    const std::string* name;
  };
  std::vector<Place> places;
  for (const RdrrTensorEntry& entry : tensors) {
    for (const RdrrSpan& span : entry.spans) places.push_back({span, &entry.name});
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::tie(a.span.shard, a.span.offset) < std::tie(b.span.shard, b.span.offset);
  });
  for (size_t i = 1; i < places.size(); ++i) {
    const Place &a = places[i - 1], &b = places[i];
    if (a.span.shard == b.span.shard && b.span.offset < a.span.offset + a.span.size) {
      faults.push_back(fmt::format("{} and {} overlap in shard {}", *a.name, *b.name, a.span.shard));
    }
  }
}

RdrrTensorEntry read_tensor(const std::string& name, const Json& item, const std::vector<RdrrShard>& shards,
                            const std::string& where, std::vector<std::string>& faults) {
  RdrrTensorEntry entry;
  entry.name = name;
  entry.shape = read_shape(item, where);
  entry.role = string_or(item, "role", "", where);
  entry.slot = string_or(item, "slot", "", where);
  entry.spans = read_spans(item, shards, where, name, faults);
  for (const RdrrSpan& span : entry.spans) entry.size += span.size;
  if (find(item, "size") && require_size(item, "size", where) != entry.size) {
    faults.push_back(
        fmt::format("{} says it has {} bytes, but its spans have {}", name, brief(*find(item, "size")), entry.size));
  }
  const std::string layout = string_or(item, "layout", "row", where);
  if (layout != "row" && layout != "row_wise") {
    faults.push_back(fmt::format("{} is laid out by '{}'; only rows can be read", name, layout));
  }
  const std::string dtype = require_string(item, "dtype", where);
  if (!dtype_from_name(dtype, entry.dtype)) {
    faults.push_back(fmt::format("{} has the unknown dtype {}", name, dtype));
  } else {
    check_size(entry, faults);
  }
  return entry;
}

}  // namespace

uint64_t RdrrTensorEntry::weights() const {
  uint64_t n = 1;
  for (int64_t dim : shape) n *= static_cast<uint64_t>(dim);
  return n;
}

RdrrManifest parse_rdrr_manifest(Json manifest, const Json* tensors, const std::string& where) {
  RdrrManifest out;
  if (!manifest.is_object()) {
    fail({.code = ErrorCode::kFormat,
          .what = "the manifest is not a JSON object",
          .where = where,
          .got = brief(manifest)});
  }
  const Json& version = require(manifest, "version", where);
  if (version != 1 && version != "1" && version != "1.0") {
    fail({.code = ErrorCode::kUnsupported,
          .what = "this version of the artefact format is unknown",
          .where = where,
          .expected = "1",
          .got = brief(version)});
  }
  out.hash_algorithm = string_or(manifest, "hashAlgorithm", "sha256", where);
  out.shards = read_shards(manifest, where, out.faults);
  const Json& list = tensors ? *tensors : require_object(manifest, "tensors", where);
  if (!list.is_object() || list.empty()) {
    fail({.code = ErrorCode::kFormat,
          .what = "the artefact lists no tensors",
          .where = where,
          .expected = "an object of tensors",
          .got = brief(list)});
  }
  bool pre_norm = false;
  for (const auto& item : list.items()) {
    out.tensors.push_back(read_tensor(item.key, item.value, out.shards, where + ": " + item.key, out.faults));
    pre_norm = pre_norm || item.key.find("pre_feedforward_layernorm") != std::string::npos;
  }
  std::map<std::string, const std::string*> by_slot;
  for (RdrrTensorEntry& entry : out.tensors) {
    if (entry.slot.empty()) entry.slot = infer_slot(entry.name, pre_norm);
    if (entry.slot.empty()) continue;
    const auto [it, fresh] = by_slot.emplace(entry.slot, &entry.name);
    if (!fresh) out.faults.push_back(fmt::format("{} and {} both claim to be {}", *it->second, entry.name, entry.slot));
  }
  check_overlap(out.tensors, out.faults);
  out.json = std::move(manifest);
  return out;
}

}  // namespace doppler
