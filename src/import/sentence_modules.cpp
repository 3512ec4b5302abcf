#include "import/sentence_modules.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/files.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void refuse_module(const std::string& what, const std::string& where, std::string expected,
                                std::string got) {
  fail({.code = ErrorCode::kUnsupported,
        .what = what,
        .where = where,
        .expected = std::move(expected),
        .got = std::move(got),
        .todo = "Read over, it would give other vectors than the model's makers meant"});
}

// One mode is on; keys of modes that are off say so, or are missing.
Pooling read_pooling(const Json& config, const std::string& where) {
  constexpr std::string_view kMode = "pooling_mode_";
  std::string mode = string_or(config, "pooling_mode", "", where);
  for (const auto& item : config.items()) {
    if (!item.key.starts_with(kMode) || !bool_or(config, item.key, false, where)) continue;
    mode += (mode.empty() ? "" : " and ") + item.key.substr(kMode.size());
  }
  if (!bool_or(config, "include_prompt", true, where))
    refuse_module("tokens of a prompt are left out of the pooling", where + ": include_prompt", "true", "false");
  if (mode == "mean_tokens" || mode == "mean") return Pooling::kMean;
  if (mode == "lasttoken") return Pooling::kLast;
  refuse_module("rows of tokens become one in a way that is not known", where, "mean_tokens or lasttoken", mode);
}

int read_dense(const Json& config, const std::string& where) {
  const std::string activation = string_or(config, "activation_function", "", where);
  if (!activation.ends_with(".Identity"))
    refuse_module("a dense layer has an activation", where + ": activation_function", "Identity", activation);
  if (bool_or(config, "bias", true, where))
    refuse_module("a dense layer has a bias", where + ": bias", "false", "true");
  const int64_t out = require_int(config, "out_features", where);
  return static_cast<int>(std::clamp<int64_t>(out, 0, INT32_MAX));
}

}  // namespace

SentenceModules read_sentence_modules(const fs::path& folder) {
  SentenceModules out;
  const fs::path list = folder / "modules.json";
  if (!is_file(list)) return out;
  const std::string where = list.string();
  const Json modules = parse_json(read_text_file(list), where);
  out.embedding.normalize = false;
  bool first = true;
  for (const Json& module : modules.is_array() ? modules : Json::array({modules})) {
    const std::string type = require_string(module, "type", where), kind = type.substr(type.rfind('.') + 1);
    const fs::path path = fs::path(string_or(module, "path", "", where)).lexically_normal();
    if (path.is_absolute() || (!path.empty() && *path.begin() == ".."))
      refuse_module("a module lies outside the checkpoint", where, "a folder in it", path.string());
    const fs::path settings = folder / path / "config.json";
    const auto config = [&] { return parse_json(read_text_file(settings), settings.string()); };
    const bool pooled = out.embedding.pooling != Pooling::kNone, open = !out.embedding.normalize;
    if (kind == "Transformer" && first) {
      if (!path.empty() && path != ".")
        refuse_module("the model itself lies elsewhere", where, "path \"\"", path.string());
    } else if (kind == "Pooling" && !first && !pooled) {
      out.embedding.pooling = read_pooling(config(), settings.string());
    } else if (kind == "Dense" && pooled && open) {
      out.embedding.dense.push_back(read_dense(config(), settings.string()));
      out.dense.push_back(folder / path);
    } else if (kind == "Normalize" && pooled && open) {
      out.embedding.normalize = true;
    } else {
      refuse_module("a module of sentence-transformers is not known, or not at this place", where,
                    "Transformer, Pooling, any Dense and perhaps Normalize", type);
    }
    first = false;
  }
  if (out.embedding.pooling == Pooling::kNone)
    refuse_module("the modules do not say how rows of tokens become one", where, "a Pooling", brief(modules));
  return out;
}

}  // namespace doppler
