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

// Loads the tokenizer, so that one Doppler cannot use is met before the work, and returns how many tokens it knows.
// Fails where there is none, unless that is excused: then 0.
int32_t require_tokenizer(const std::filesystem::path& source, bool optional);

// Copies the files that exist and describes the tokenizer in the manifest (null where there is none, `tokens` being 0).
void copy_sidecars(const std::filesystem::path& source, const std::filesystem::path& target, int32_t tokens,
                   const ModelConfig& config, Json& manifest, std::vector<std::string>& notes);

}  // namespace doppler
