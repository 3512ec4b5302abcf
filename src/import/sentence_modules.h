// What sentence-transformers puts beside a checkpoint: modules.json, a list of what is done with a text one after
// another, each with a folder of its own (1_Pooling/config.json, 2_Dense/config.json and its weights).
#pragma once

#include <filesystem>
#include <vector>

#include "model/model_config.h"

namespace doppler {

struct SentenceModules {
  EmbeddingConfig embedding;                 // of no pooling where the folder has no modules.json
  std::vector<std::filesystem::path> dense;  // folders of the matrices, in the order of embedding.dense
};
// Fails with a sentence for what this engine does not do.
SentenceModules read_sentence_modules(const std::filesystem::path& folder);

}  // namespace doppler
