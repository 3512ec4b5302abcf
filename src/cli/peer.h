// llama.cpp on this machine, through npm's node-llama-cpp: beside this engine in `bench peers`, and what `debug` holds
// a run against.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "debug/stages.h"
#include "engine/loaded_model.h"

namespace doppler {

// The script that drives it: the program's own, and no other, for what is found is run.
std::filesystem::path peer_script();

// The folder with node_modules, filled on first use. Only the plain CPU build is fetched, none for other machines.
std::filesystem::path install_peer(const std::function<void(std::string_view)>& progress);

// llama.cpp brings a library for each kind of CPU and takes the best that runs. Where DOPPLER_CPU holds this engine to
// an instruction set, a copy with one library alone holds llama.cpp to the same.
std::filesystem::path held_back_peer(const std::filesystem::path& peers);

// GGUF files made for the comparison; gone with it.
struct PeerModels {
  explicit PeerModels(const std::filesystem::path& root);
  ~PeerModels();
  PeerModels(const PeerModels&) = delete;
  PeerModels& operator=(const PeerModels&) = delete;
  std::filesystem::path folder;
};

// What llama.cpp's logits are behind each token: one stage, "logits". `path` is a GGUF file, or an artefact, which is
// written as one of the same types first.
Stages peer_logits(const std::filesystem::path& path, const LoadedModel& model, std::span<const int32_t> tokens,
                   int threads);

// The likeliest token and its log-probability, of both, behind each token that both have.
std::string likeliest_table(const Stage& run, const Stage& reference,
                            const std::function<std::string(int32_t token)>& piece);

}  // namespace doppler
