#include "engine/loaded_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "format/shard_hash.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

constexpr int kModestContext = 4096;

Sampling recommended_sampling(const fs::path& folder) {
  const fs::path path = folder / "generation_config.json";
  Sampling sampling;
  if (!file_exists(path)) return sampling;
  const std::string where = path.string();
  const Json config = parse_json(read_text_file(path), where);
  if (!bool_or(config, "do_sample", false, where)) return sampling;
  sampling.temperature = static_cast<float>(number_or(config, "temperature", 1, where));
  sampling.top_k = static_cast<int>(int_or(config, "top_k", 0, where));
  sampling.top_p = static_cast<float>(number_or(config, "top_p", 1, where));
  sampling.min_p = static_cast<float>(number_or(config, "min_p", 0, where));
  sampling.repeat_penalty = static_cast<float>(number_or(config, "repetition_penalty", 1, where));
  return sampling;
}

}  // namespace

LoadedModel LoadedModel::load_rdrr(const fs::path& path) {
  LoadedModel model;
  const auto owned = std::make_shared<const RdrrReader>(RdrrReader::open(path));
  const RdrrReader& reader = *owned;
  model.owner_ = owned;
  model.artefact = &reader;
  const std::string where = (reader.folder() / "manifest.json").string();
  model.config = read_model_config(reader.manifest(), where);
  model.quantization = string_or(reader.manifest(), "quantization", "", where);
  model.plan = build_plan(model.config);
  for (const RdrrTensorEntry& entry : reader.entries()) {
    if (entry.slot.empty()) {
      fail({.code = ErrorCode::kUnsupported,
            .what = "the artefact holds a tensor the engine has no place for",
            .where = where,
            .got = entry.name});
    }
    model.weights.add(entry.slot, reader.tensor(entry));
  }
  for (const RdrrShard& shard : reader.shards()) model.artefact_bytes += shard.size;
  model.check_weights(where);
  model.take_texts(reader.folder());
  model.take_named_template(reader.manifest(), where);
  if (!ShardHash::knows(reader.hash_algorithm())) {
    model.notes.push_back(fmt::format(
        "its shards are hashed with {}, which cannot be checked; sizes and places are right", reader.hash_algorithm()));
  }
  if (tracing(Trace::kLoader)) {
    trace(Trace::kLoader, fmt::format("{}: {} tensors in {} shards, {} bytes, {}{}", reader.folder().string(),
                                      model.weights.all().size(), reader.shards().size(), model.artefact_bytes,
                                      model.quantization, model.tokenizer ? ", with a tokenizer" : ""));
  }
  return model;
}

void LoadedModel::take_texts(const fs::path& folder) {
  if (file_exists(folder / "tokenizer.json")) {
    tokenizer = Tokenizer::load(folder);
    chat_template = ChatTemplate::load(folder);
  }
  recommended = recommended_sampling(folder);
  const fs::path settings = folder / "config_sentence_transformers.json";
  if (config.makes_text() || !file_exists(settings)) return;
  const std::string where = settings.string();
  const Json json = parse_json(read_text_file(settings), where);
  if (find(json, "prompts")) {
    const Json& list = require_object(json, "prompts", where);
    for (const auto& item : list.items()) prompts[item.key] = require_string(list, item.key, where + ": prompts");
  }
  default_prompt = string_or(json, "default_prompt_name", "", where);
}

void LoadedModel::take_named_template(const Json& manifest, const std::string& where) {
  const Json* named = find(require_object(manifest, "inference", where), "chatTemplate");
  if (!tokenizer || chat_template->present() || !named || !bool_or(*named, "enabled", false, where)) return;
  const std::string type = string_or(*named, "type", "", where + ": inference.chatTemplate");
  chat_template = ChatTemplate::from_name(type);
  if (!type.empty() && !chat_template->present()) {
    notes.push_back(
        fmt::format("its chat template is of the unknown kind {}: it can complete a text, but not chat", type));
  }
}

void LoadedModel::check_weights(const std::string& where) const {
  const std::vector<std::string> faults = weight_faults(plan, weights);
  if (faults.empty()) return;
  fail({.code = ErrorCode::kFormat,
        .what = "config and tensors disagree",
        .where = where,
        .got = faults[0] + (faults.size() > 1 ? fmt::format(" (and {} more)", faults.size() - 1) : ""),
        .todo = "Run doppler verify for the whole list, then convert the model again"});
}

const Tokenizer& LoadedModel::need_tokenizer() const {
  if (!tokenizer) {
    fail({.code = ErrorCode::kUsage,
          .what = "this model has no tokenizer",
          .where = config.id,
          .todo = "Give token ids with --prompt-ids, or convert the model with its tokenizer.json"});
  }
  return *tokenizer;
}

const ChatTemplate& LoadedModel::need_chat_template() const {
  if (!chat_template || !chat_template->present()) {
    fail({.code = ErrorCode::kUsage,
          .what = "this model has no chat template, so it cannot chat",
          .where = config.id,
          .todo = "Let it complete a prompt instead: doppler run --raw"});
  }
  return *chat_template;
}

void LoadedModel::need_text() const {
  if (config.makes_text()) return;
  fail({.code = ErrorCode::kUnsupported,
        .what = "this model makes vectors of texts, and no text",
        .where = config.id,
        .todo = "Take its vectors: doppler embed MODEL TEXT, or /v1/embeddings of doppler serve"});
}

int default_context(const ModelConfig& config) { return std::min(config.max_context, kModestContext); }

}  // namespace doppler
