#include "convert/sidecar.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "format/rdrr.h"
#include "tokenizer/tokenizer.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

bool there(const fs::path& path) {
  std::error_code ec;
  return fs::is_regular_file(path, ec);
}

}  // namespace

void add_generation_ids(const fs::path& source, ModelConfig& config) {
  const fs::path path = source / "generation_config.json";
  if (!there(path)) return;
  const Json generation = parse_json(read_text_file(path), path.string());
  std::vector<int32_t> ids;
  if (const Json* eos = find(generation, "eos_token_id")) {
    for (const Json& id : eos->is_array() ? *eos : Json::array({*eos})) {
      if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
        fail({ErrorCode::kFormat, "a token id is not a whole number", path.string() + ": eos_token_id", "", brief(id),
              ""});
      }
      ids.push_back(id.get<int32_t>());
    }
  }
  for (const int32_t id : config.eos_ids) ids.push_back(id);
  config.eos_ids.clear();
  for (const int32_t id : ids) {
    if (std::find(config.eos_ids.begin(), config.eos_ids.end(), id) == config.eos_ids.end())
      config.eos_ids.push_back(id);
  }
  const int64_t bos = int_or(generation, "bos_token_id", -1, path.string());
  if (config.bos_id < 0 && bos >= 0 && bos <= INT32_MAX) config.bos_id = static_cast<int32_t>(bos);
}

int32_t require_tokenizer(const fs::path& source, bool optional) {
  if (there(source / "tokenizer.json")) return Tokenizer::load(source).vocab_size();
  if (optional) return 0;
  fail({ErrorCode::kFile, "the checkpoint has no tokenizer", (source / "tokenizer.json").string(), "", "",
        "Fetch tokenizer.json with the checkpoint, or go on without text by --no-tokenizer"});
}

void copy_sidecars(const fs::path& source, const fs::path& target, int32_t tokens, const ModelConfig& config,
                   Json& manifest, std::vector<std::string>& notes) {
  for (const std::string_view name : kRdrrSidecars) {
    if (there(source / name)) write_file_whole(target / name, read_text_file(source / name));
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
  if (there(settings)) {
    const Json json = parse_json(read_text_file(settings), settings.string());
    if (find(json, "add_bos_token")) entry["addBosToken"] = bool_or(json, "add_bos_token", false, settings.string());
  }
}

}  // namespace doppler
