#pragma once

#include <CLI/CLI.hpp>

namespace doppler {

// --gpu-memory, for verbs that run a model.
inline void add_gpu_memory(CLI::App& verb, uint64_t& bytes) {
  verb.add_option("--gpu-memory", bytes,
                  "The most that a model may take on a GPU: bytes, 512MiB or 8GiB; experts beyond that are fetched "
                  "when they are chosen")
      ->transform(CLI::AsSizeValue(false))
      ->check([](const std::string& value) { return value == "0" ? "must be more than nothing" : ""; });
}

}  // namespace doppler
