// A model ready to run: what the artefact's folder holds, read and checked once. The weights stay mapped files.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "engine/sampler.h"
#include "format/rdrr.h"
#include "model/executor.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace doppler {

class LoadedModel {
 public:
  // `path` is an RDRR folder. Fails with a sentence where config and tensors disagree.
  static LoadedModel load(const std::filesystem::path& path);

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
  explicit LoadedModel(RdrrReader reader) : reader_(std::make_unique<RdrrReader>(std::move(reader))) {}
  std::unique_ptr<RdrrReader> reader_;  // owns the bytes of `weights`
};

// The context to make room for when nobody asked: the model's own, but no more than 4096 tokens.
int default_context(const ModelConfig& config);

}  // namespace doppler
