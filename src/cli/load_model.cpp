#include "cli/load_model.h"

#include <fmt/format.h>

#include <cstdio>

#include "convert/gguf_model.h"

namespace doppler {

LoadedModel load_model(const std::filesystem::path& path) {
  if (!is_gguf(path)) return LoadedModel::load(path);
  const std::string where = path.string();
  OpenedGguf opened = open_gguf(path);
  for (const std::string& note : opened.notes) fmt::print(stderr, "doppler: {}: {}\n", where, note);
  ModelParts parts;
  if (opened.tokenizer) {
    const TokenizerFiles& files = *opened.tokenizer;
    parts.tokenizer = Tokenizer::from_files(files.tokenizer_json, files.tokenizer_config_json, where);
    parts.chat_template = ChatTemplate::from_config(parse_json(files.tokenizer_config_json, where), where);
  }
  parts.config = std::move(opened.config);
  parts.weights = std::move(opened.weights);
  parts.owner = std::move(opened.owner);
  parts.quantization = "GGUF " + opened.file_type;
  parts.bytes = opened.file_bytes;
  return LoadedModel::assemble(std::move(parts), where);
}

}  // namespace doppler
