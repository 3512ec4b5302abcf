// Opening whatever a model lies in. The browser, which has RDRR folders only, leaves this file out.
#include "engine/loaded_model.h"
#include "format/gguf.h"
#include "import/gguf_model.h"

namespace doppler {

LoadedModel LoadedModel::load(const std::filesystem::path& path) {
  return is_gguf(path) ? load_gguf(path) : load_rdrr(path);
}

LoadedModel LoadedModel::load_gguf(const std::filesystem::path& path) {
  const std::string where = path.string();
  OpenedGguf opened = open_gguf(path);
  LoadedModel model;
  model.config = std::move(opened.config);
  model.plan = build_plan(model.config);
  model.weights = std::move(opened.weights);
  model.owner_ = std::move(opened.owner);
  if (opened.tokenizer) {
    const TokenizerFiles& files = *opened.tokenizer;
    model.tokenizer = Tokenizer::from_files(files.tokenizer_json, files.tokenizer_config_json, where);
    model.chat_template = ChatTemplate::from_config(parse_json(files.tokenizer_config_json, where), where);
  }
  model.quantization = "GGUF " + opened.file_type;
  model.artefact_bytes = opened.file_bytes;
  model.notes = std::move(opened.notes);
  model.check_weights(where);
  return model;
}

}  // namespace doppler
