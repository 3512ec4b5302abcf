// Models that llama.cpp's tools cut into several files: NAME-00001-of-00003.gguf and so on. Each part is a GGUF file of
// its own with split.no (from 0), split.count and split.tensors.count; only the first has the model's metadata.
#include <fmt/format.h>

#include <charconv>

#include "base/error.h"
#include "format/gguf.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kMostParts = 99999;  // five digits

struct PartName {
  std::string stem;
  uint64_t number = 0, count = 0;
};

// "m-00002-of-00005.gguf" → {"m", 2, 5}; a count of 0 for any other name.
PartName parse_part(const std::string& name) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";
  if (name.size() <= kPattern.size()) return {};
  const std::string_view tail = std::string_view(name).substr(name.size() - kPattern.size());
  for (size_t i = 0; i < kPattern.size(); ++i) {
    const bool digit = tail[i] >= '0' && tail[i] <= '9';
    if (kPattern[i] == '0' ? !digit : tail[i] != kPattern[i]) return {};
  }
  PartName part{name.substr(0, name.size() - kPattern.size())};
  std::from_chars(tail.data() + 1, tail.data() + 6, part.number);
  std::from_chars(tail.data() + 10, tail.data() + 15, part.count);
  return part;
}

// A whole number of the metadata; 0 where it is absent or something else.
uint64_t split_number(const GgufFile& file, std::string_view key) {
  const GgufValue* value = file.find(key);
  const double n = value && value->is_number() ? value->number() : 0;
  return n >= 0 && n <= 1e9 ? static_cast<uint64_t>(n) : 0;
}

}  // namespace

fs::path gguf_part(const fs::path& path, uint64_t number) {
  const PartName part = parse_part(path.filename().string());
  if (part.count == 0) return {};
  return path.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", part.stem, number, part.count);
}

void GgufFile::join_parts(const fs::path& first) {
  const uint64_t count = split_number(*this, "split.count"), named = parse_part(first.filename().string()).count;
  if (count <= 1) return;
  if (named != count || count > kMostParts || split_number(*this, "split.no") != 0) {
    const std::string part = fmt::format("part {} of {}", split_number(*this, "split.no") + 1, count);
    fail({.code = split_number(*this, "split.no") != 0 && named == count ? ErrorCode::kFile : ErrorCode::kFormat,
          .what = "the first part of a split model is not where this part's name says",
          .where = where_,
          .expected = named == count ? gguf_part(first, 1).string()
                                     : fmt::format("a name that ends with -{:05}-of-{:05}.gguf",
                                                   split_number(*this, "split.no") + 1, count),
          .got = part,
          .todo = "Put all parts into one folder under the names they were published with"});
  }
  for (uint64_t number = 2; number <= count; ++number) {
    const fs::path path = gguf_part(first, number);
    if (!file_exists(path)) {
      fail({.code = ErrorCode::kFile,
            .what = "a part of a split model is missing",
            .where = path.string(),
            .expected = fmt::format("{} parts", count),
            .todo = "Fetch it into the same folder"});
    }
    more_.emplace_back(path);
    GgufFile part(more_.back().bytes(), path.string());
    if (split_number(part, "split.count") != count || split_number(part, "split.no") != number - 1) {
      fail(
          {.code = ErrorCode::kFormat,
           .what = "this is not the part of the split model that its name says",
           .where = path.string(),
           .expected = fmt::format("part {} of {}", number, count),
           .got = fmt::format("part {} of {}", split_number(part, "split.no") + 1, split_number(part, "split.count"))});
    }
    size_ += part.size();
    for (const auto& [name, index] : part.by_name_) {
      if (!by_name_.emplace(name, tensors_.size()).second) {
        fail({.code = ErrorCode::kFormat,
              .what = "two parts of a split model have the same tensor",
              .where = path.string(),
              .got = std::string(name)});
      }
      tensors_.push_back(std::move(part.tensors_[index]));
    }
  }
  if (const uint64_t all = split_number(*this, "split.tensors.count"); all != 0 && all != tensors_.size()) {
    fail({.code = ErrorCode::kFormat,
          .what = "the parts of a split model do not have all of its tensors",
          .where = where_,
          .expected = std::to_string(all),
          .got = std::to_string(tensors_.size())});
  }
}

}  // namespace doppler
