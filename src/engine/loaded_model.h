// A model ready to run: what an artefact's folder, a GGUF file or a Hugging Face folder holds, read and checked once.
// The weights stay mapped files.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "format/rdrr.h"
#include "jinja/chat_template.h"
#include "model/executor.h"
#include "tokenizer/tokenizer.h"

namespace doppler {

enum class ModelKind : uint8_t { kRdrr, kGguf, kCheckpoint };
// What lies there, by its first bytes or the files in it; kRdrr also where nothing does.
ModelKind model_kind(const std::filesystem::path& path);

class LoadedModel {
 public:
  // `named` is an RDRR folder, a GGUF file (any part of a split one), a Hugging Face folder, or what import/recognise.h
  // finds one of these in. Fails with a sentence where config and tensors disagree.
  static LoadedModel load(const std::filesystem::path& named);
  static LoadedModel load_rdrr(const std::filesystem::path& folder);  // all that the browser has

  ModelConfig config;
  Plan plan;
  Weights weights;
  std::optional<Weights> gpu_weights;  // where a GPU computes from other types: these, made when they are read
  std::optional<Tokenizer> tokenizer;  // synthetic models have none
  std::optional<ChatTemplate> chat_template;
  Sampling recommended;  // the sampling its makers recommend, for whoever wants it; greedy if they say nothing
  // What is put before a text that becomes a vector, by name, and the name of the one that is where nobody says.
  std::map<std::string, std::string> prompts;
  std::string default_prompt;
  std::string quantization;  // as the manifest says
  uint64_t artefact_bytes = 0;
  const RdrrReader* artefact = nullptr;  // that it came from; null of any other kind
  std::vector<std::string>
      notes;  // what a person should know of it: what was done to weights, what could not be checked

  // The tokenizer, or a sentence that there is none.
  const Tokenizer& need_tokenizer() const;
  const ChatTemplate& need_chat_template() const;  // likewise
  // Fails for a model that makes vectors, and no text.
  void need_text() const;

 private:
  LoadedModel() = default;
  static LoadedModel load_gguf(const std::filesystem::path& path);
  static LoadedModel load_checkpoint(const std::filesystem::path& folder);
  // Tokenizer, chat template, recommended sampling and prompts, where the folder has them.
  void take_texts(const std::filesystem::path& folder);
  void take_named_template(const Json& manifest, const std::string& where);  // where the folder has none
  void check_weights(const std::string& where) const;
  std::shared_ptr<const void> owner_;  // of the bytes of `weights`
};

// All of these for the model, as an executor takes them; null where there are none. A sequence for which nobody says
// has all of them, each times its scale, if `standard`. Fails with a sentence where one does not fit the model.
std::shared_ptr<const Adapters> load_adapters(const LoadedModel& model, std::span<const AdapterSpec> specs,
                                              bool standard = true);

// The context to make room for when nobody asked: the model's own, but no more than 4096 tokens.
int default_context(const ModelConfig& config);

}  // namespace doppler
