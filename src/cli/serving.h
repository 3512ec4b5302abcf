// What the verbs that answer many requests at once have in common.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "serve/engine_thread.h"

namespace doppler {

// NAME=MODEL, or a model whose last part is the name; one from elsewhere is fetched. None: the model that ships with
// Doppler.
// `adapters`, as --lora says them, are the first model's.
std::vector<serve::ModelSpec> model_specs(const std::vector<std::string>& words,
                                          const std::vector<std::string>& adapters);

struct EngineArguments {
  std::string backend = "auto";
  int context = 0, threads = 0, device = -1;
  uint64_t cache_memory = 0, gpu_memory = 0;
  bool no_verify = false;
  std::vector<std::string> adapters;
  std::string kernel, watchdog = "off";
};
void add_engine_options(Verb verb, EngineArguments& arguments);
serve::EngineOptions engine_options(const EngineArguments& arguments, int sequences);

}  // namespace doppler
