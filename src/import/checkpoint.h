// A Hugging Face folder as a model of ours, without an artefact between: its weights stay where they are mapped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "model/model_config.h"
#include "model/weights.h"

namespace doppler {

// A folder with config.json and without an artefact's manifest.json.
bool is_checkpoint(const std::filesystem::path& folder);

// Matrices are used as they are (BF16, F16, F32). Held in memory are norms, biases and routers, as F32, MXFP4 halves,
// joined, and what is stored quantised otherwise, decoded and rounded once to BF16, the type of the weights it was made
// from. The notes say how much that is, and what was left out.
struct OpenedCheckpoint {
  ModelConfig config;  // its id is the folder's name
  Weights weights;
  std::string main_type;  // the type most of its bytes have
  uint64_t file_bytes = 0, copied_bytes = 0;
  std::vector<std::string> notes;
  std::shared_ptr<const void> owner;  // of the weights' bytes
};
// Fails where what must be decoded is more than `memory` bytes.
OpenedCheckpoint open_checkpoint(const std::filesystem::path& folder, uint64_t memory = UINT64_MAX);

}  // namespace doppler
