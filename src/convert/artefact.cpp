#include "convert/artefact.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "base/version.h"
#include "convert/public_manifest.h"
#include "tokenizer/tokenizer.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

// The public format's short words: "q4k", "q6k", "q8_0", "f16".
std::string short_name(DType dtype) {
  std::string name(name_of(dtype));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  const size_t k = name.find("_k");
  return k == std::string::npos ? name : name.substr(0, k) + "k";
}

// Adds what `target` does not have; what it has stays.
void merge_missing(Json& target, const Json& extra) {
  for (const auto& item : extra.items()) {
    if (!target.contains(item.key)) {
      target[item.key] = item.value;
    } else if (target[item.key].is_object() && item.value.is_object()) {
      merge_missing(target[item.key], item.value);
    }
  }
}

}  // namespace

double ClassReport::bits_per_weight() const {
  return weights ? static_cast<double>(bytes) * 8 / static_cast<double>(weights) : 0;
}

double ClassReport::relative_error() const {
  return source_squares > 0 ? std::sqrt(error_squares / source_squares) : 0;
}

ClassReport& ArtefactReport::of(QuantClass quant, DType dtype) {
  for (ClassReport& line : classes) {
    if (line.quant == quant && line.dtype == dtype) return line;
  }
  classes.push_back({quant, dtype});
  return classes.back();
}

fs::path final_name(const fs::path& folder) {
  std::error_code ec;
  fs::path path = fs::absolute(folder, ec).lexically_normal();
  if (ec) fail_io("it cannot be told where the folder lies", folder, ec.value());
  return path.filename().empty() ? path.parent_path() : path;
}

void check_destination(const fs::path& dst, bool replace) {
  std::error_code ec;
  const fs::file_status there = fs::symlink_status(dst, ec);
  if (there.type() == fs::file_type::none)
    fail_io("it cannot be told whether the destination is there", dst, ec.value());
  if (!fs::exists(there)) return;
  if (!replace) {
    fail({.code = ErrorCode::kUsage,
          .what = "something with this name is already there",
          .where = dst.string(),
          .todo = "Choose another name, or replace it with --force"});
  }
  // --force must not be able to remove a folder of something else.
  const bool artefact = fs::is_directory(there) && (file_exists(dst / "manifest.json") || fs::is_empty(dst, ec));
  if (ec) fail_io("the folder cannot be read", dst, ec.value());
  if (!artefact) {
    fail({.code = ErrorCode::kUsage,
          .what = "--force replaces artefacts only",
          .where = dst.string(),
          .expected = "a folder with manifest.json",
          .got = "something else",
          .todo = "Remove it yourself, or choose another name"});
  }
}

void check_room(const fs::path& dst, uint64_t bytes) {
  std::error_code ec;
  fs::path existing = dst.parent_path();
  while (!existing.empty() && !fs::exists(existing, ec) && existing != existing.parent_path())
    existing = existing.parent_path();
  const fs::space_info space = fs::space(existing.empty() ? "." : existing, ec);
  if (ec || space.available >= bytes) return;  // unknown: writing itself will tell
  fail({.code = ErrorCode::kFile,
        .what = "the disk has too little room for the artefact",
        .where = dst.string(),
        .expected = fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)),
        .got = fmt::format("{:.1f} MiB", static_cast<double>(space.available) / (1 << 20)),
        .todo = "Free some disk space, or write to another disk"});
}

Json make_manifest(const ModelConfig& config, const Family& family, const Recipe& recipe, const std::string& source,
                   const std::vector<RdrrTensorEntry>& tensors) {
  Json manifest;
  manifest["version"] = 1;
  manifest["modelId"] = config.id;
  manifest["modelType"] = "transformer";
  manifest["quantization"] = recipe.published;
  const std::string weights = short_name(recipe.matrix), embeddings = short_name(recipe.embedding);
  Json& quantization = manifest["quantizationInfo"];
  quantization["weights"] = weights;
  quantization["embeddings"] = embeddings;
  if (!config.tied_output) quantization["lmHead"] = embeddings;
  quantization["compute"] = "f32";
  quantization["layout"] = "row";
  quantization["variantTag"] = weights == embeddings ? "w" + weights : "w" + weights + "-e" + embeddings;
  write_model_config(config, manifest);
  manifest["metadata"] = {{"family", family.name}, {"source", source}, {"writer", "doppler " + std::string(kVersion)}};
  if (const Json* extra = find(family.json, "manifest")) merge_missing(manifest, *extra);
  add_public_parts(tensors, manifest);
  return manifest;
}

int32_t require_tokenizer(const fs::path& source, bool optional) {
  if (is_file(source / "tokenizer.json")) return Tokenizer::load(source).vocab_size();
  if (optional) return 0;
  const char* other = is_file(source / "tokenizer.model") ? "tokenizer.model (SentencePiece)"
                      : is_file(source / "tekken.json")   ? "tekken.json"
                                                          : "";
  fail({.code = ErrorCode::kFile,
        .what = "the checkpoint has no tokenizer that Doppler reads",
        .where = (source / "tokenizer.json").string(),
        .expected = *other ? "tokenizer.json" : "",
        .got = other,
        .todo = "Fetch tokenizer.json with the checkpoint, or go on without text by --no-tokenizer"});
}

void copy_sidecars(const fs::path& source, const fs::path& target, int32_t tokens, const ModelConfig& config,
                   Json& manifest, std::vector<std::string>& notes) {
  for (const std::string_view name : kRdrrSidecars) {
    if (is_file(source / name)) write_file_whole(target / name, read_text_file(source / name));
  }
  manifest["tokenizer"] = nullptr;
  if (tokens == 0) {
    notes.push_back("there is no tokenizer: run takes token ids only (--prompt-ids)");
    return;
  }
  if (tokens > config.vocab) {
    notes.push_back(fmt::format("the tokenizer knows {} tokens, the embedding {}: the last ones cannot be used", tokens,
                                config.vocab));
  }
  Json& entry = manifest["tokenizer"];
  entry = {{"type", "bundled"}, {"file", "tokenizer.json"}, {"vocabSize", tokens}};
  const fs::path settings = source / "tokenizer_config.json";
  if (is_file(settings)) {
    const Json json = parse_json(read_text_file(settings), settings.string());
    if (find(json, "add_bos_token")) entry["addBosToken"] = bool_or(json, "add_bos_token", false, settings.string());
  }
}

}  // namespace doppler
