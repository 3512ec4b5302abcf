// The files that travel beside the weights: tokenizer, chat template, generation settings.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/model_config.h"

namespace doppler {

// Adds generation_config.json's eos ids before those of config.json: either list ends an answer.
void add_generation_ids(const std::filesystem::path& source, ModelConfig& config);

// Fails if `source` has no tokenizer.json, unless `optional`.
void require_tokenizer(const std::filesystem::path& source, bool optional);

// Copies the files that exist and describes the tokenizer in the manifest (null where there is none).
void copy_sidecars(const std::filesystem::path& source, const std::filesystem::path& target, const ModelConfig& config,
                   Json& manifest, std::vector<std::string>& notes);

}  // namespace doppler
