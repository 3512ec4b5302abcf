// Artefacts of real architectures with random weights, for measuring where the weights cannot be had.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "convert/artefact.h"
#include "model/weights.h"

namespace doppler {

struct SynthOptions {
  Recipe recipe;
  uint64_t shard_size = kRdrrShardSize;
  int threads = 0;
  uint64_t seed = 0;
  std::string id;  // empty: the destination's name
  bool replace = false;
  std::function<void(uint64_t done, uint64_t all)> progress;  // weights
  std::function<bool()> cancelled;
};

// `preset` is one of presets(). The same seed gives the same bytes whatever the threads.
ArtefactReport synth(const Preset& preset, const std::filesystem::path& target, const SynthOptions& options);

// What a preset's tensors are, without their bytes.
struct SizedModel {
  ModelConfig config;
  Weights weights;
};
SizedModel sized_model(const Preset& preset, const Recipe& recipe);

}  // namespace doppler
