// What the verbs that take a model have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

#include "engine/loaded_model.h"

namespace doppler {

// The file of the running program; what belongs to it lies beside it.
std::filesystem::path program_path();

// models/tiny in the current folder, or beside the folder the program lies in. Fails with a sentence if neither is.
std::filesystem::path default_model();

// Node for the page's scripts and for llama.cpp: the one that tools/setup.sh put beside the program, else PATH's.
std::filesystem::path node_program();

// The model that was named (an RDRR folder or a GGUF file), or the default one. What had to be done to a GGUF's weights
// is said on standard error.
LoadedModel open_model(const std::string& name);

// --gpu-memory, for verbs that run a model.
void add_gpu_memory(CLI::App& verb, uint64_t& bytes);

}  // namespace doppler
