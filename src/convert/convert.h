// From a Hugging Face folder, or a GGUF file, to an artefact.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "convert/artefact.h"

namespace doppler {

struct ConvertOptions {
  // Absent: q4_k_m, except that modules which the checkpoint itself lists as not to be quantised
  // (quantization_config.modules_to_not_convert) keep their precision. A recipe that is named applies to all matrices.
  std::optional<Recipe> recipe = {};
  uint64_t shard_size = kRdrrShardSize;
  int threads = 0;                          // 0: one per core
  std::string id = {};                      // the model's name; empty: the destination's
  bool no_tokenizer = false;                // go on where tokenizer.json is missing
  bool replace = false;                     // an artefact that is already there gives way
  std::string family_file = {};             // a family of the user's instead of those in the program
  std::set<std::string> ignored_keys = {};  // of config.json
  std::vector<std::string> adapters = {};   // folders of LoRA adapters, merged into the weights
  std::function<void(uint64_t done, uint64_t all)> progress = {};  // weights
  std::function<bool()> cancelled = {};                            // asked now and then; true stops and leaves nothing
};

// `source` is the folder, or the file. The weights of a GGUF keep their types where there are kernels for them and
// become Q8_0 where not, unless a recipe is named.
ArtefactReport convert(const std::filesystem::path& source, const std::filesystem::path& target,
                       const ConvertOptions& options);

}  // namespace doppler
