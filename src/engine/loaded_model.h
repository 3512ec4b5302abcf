// A model ready to run: what the artefact's folder holds, read and checked once. The weights stay mapped files.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "engine/sampler.h"
#include "format/rdrr.h"
#include "jinja/chat_template.h"
#include "model/executor.h"
#include "tokenizer/tokenizer.h"

namespace doppler {

// A model that somebody else read from a file of another kind, for LoadedModel::assemble().
struct ModelParts {
  ModelConfig config;
  Weights weights;
  std::shared_ptr<const void> owner;  // of the weights' bytes
  std::optional<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
  std::string quantization;
  uint64_t bytes = 0;
};

class LoadedModel {
 public:
  // `path` is an RDRR folder. Fails with a sentence where config and tensors disagree.
  static LoadedModel load(const std::filesystem::path& path);

  static LoadedModel assemble(ModelParts parts, const std::string& where);

  ModelConfig config;
  Plan plan;
  Weights weights;
  std::optional<Tokenizer> tokenizer;  // synthetic models have none
  std::optional<ChatTemplate> chat_template;
  Sampling recommended;      // the sampling its makers recommend, for whoever wants it; greedy if they say nothing
  std::string quantization;  // as the manifest says
  uint64_t artefact_bytes = 0;

  // The tokenizer, or a sentence that there is none.
  const Tokenizer& need_tokenizer() const;

 private:
  LoadedModel() = default;
  void check_weights(const std::string& where) const;
  std::shared_ptr<const void> owner_;  // of the bytes of `weights`
};

// The context to make room for when nobody asked: the model's own, but no more than 4096 tokens.
int default_context(const ModelConfig& config);

}  // namespace doppler
