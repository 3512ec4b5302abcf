// Opening whatever a model lies in. The browser, which has RDRR folders only, leaves this file out.
#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "cpu/memory.h"
#include "engine/loaded_model.h"
#include "format/gguf.h"
#include "import/adapter.h"
#include "import/checkpoint.h"
#include "import/gguf_model.h"
#include "import/recognise.h"

namespace doppler {

ModelKind model_kind(const std::filesystem::path& path) {
  if (is_gguf(path)) return ModelKind::kGguf;
  return is_checkpoint(path) ? ModelKind::kCheckpoint : ModelKind::kRdrr;
}

LoadedModel LoadedModel::load(const std::filesystem::path& named) {
  const std::filesystem::path path = recognise(named);
  switch (model_kind(path)) {
    case ModelKind::kGguf: return load_gguf(path);
    case ModelKind::kCheckpoint: return load_checkpoint(path);
    case ModelKind::kRdrr: break;
  }
  return load_rdrr(path);
}

LoadedModel LoadedModel::load_gguf(const std::filesystem::path& path) {
  const std::string where = path.string();
  OpenedGguf opened = open_gguf(path);
  LoadedModel model;
  model.config = std::move(opened.config);
  model.plan = build_plan(model.config);
  model.weights = std::move(opened.weights);
  model.gpu_weights = std::move(opened.gpu_weights);
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

LoadedModel LoadedModel::load_checkpoint(const std::filesystem::path& folder) {
  OpenedCheckpoint opened = open_checkpoint(folder, cpu::available_memory());
  LoadedModel model;
  model.config = std::move(opened.config);
  model.plan = build_plan(model.config);
  model.weights = std::move(opened.weights);
  model.owner_ = std::move(opened.owner);
  model.take_texts(folder);
  model.quantization = "checkpoint " + opened.main_type;
  model.artefact_bytes = opened.file_bytes;
  model.notes = std::move(opened.notes);
  model.check_weights(folder.string());
  return model;
}

std::shared_ptr<const Adapters> load_adapters(const LoadedModel& model, std::span<const AdapterSpec> specs,
                                              bool standard) {
  if (specs.empty()) return nullptr;
  auto adapters = std::make_shared<Adapters>();
  for (const AdapterSpec& spec : specs) {
    const int number = static_cast<int>(adapters->all.size());
    if (!std::isfinite(spec.scale)) {
      fail({.code = ErrorCode::kUsage,
            .what = "the scale of an adapter is no finite number",
            .where = spec.path.string()});
    }
    adapters->all.push_back(load_adapter(spec, model.config, model.plan, cpu::available_memory()));
    if (standard) adapters->standard.push_back({number, spec.scale});
  }
  return adapters;
}

}  // namespace doppler
