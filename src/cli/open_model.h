// What the verbs that take a model have in common.
#pragma once

#include <filesystem>
#include <string>

#include "cli/options.h"
#include "engine/loaded_model.h"
#include "hub/hub.h"

namespace doppler {

// The file of the running program; what belongs to it lies beside it.
std::filesystem::path program_path();

// models/tiny beside the folder the program lies in, or where it was installed; never what the current folder happens
// to hold, which may be a stranger's. Fails with a sentence if it is nowhere.
std::filesystem::path default_model();

// Node for the page's scripts and for llama.cpp: the one that tools/setup.sh put beside the program, else PATH's.
std::filesystem::path node_program();

// --offline, for every verb: nothing is fetched.
void add_offline(Verb program);

// The environment's caches and token, a bar on the terminal, an end at Ctrl-C. `work` gets the options.
void with_pull_options(const std::function<void(const PullOptions&)>& work);

// What was named, on this machine: a path as it is, hf:org/repo or an address fetched first; nothing is the model that
// ships with Doppler.
std::filesystem::path local_model(const std::string& name, ModelUse use = ModelUse::kRun);
inline constexpr const char* kModelHelp =
    "An RDRR folder, a GGUF file, a Hugging Face folder, hf:org/repo[@revision][:quantisation], or an address "
    "(default: "
    "the model that ships with Doppler)";

// The model that was named, ready to run. What had to be done to its weights is said on standard error.
LoadedModel open_model(const std::string& name);

// --no-verify, for verbs that run a model.
void add_no_verify(Verb verb, bool& no_verify);

// --lora PATH[=SCALE], for verbs that run a model, and what it names.
void add_lora(Verb verb, std::vector<std::string>& words);
std::vector<AdapterSpec> adapter_specs(const std::vector<std::string>& words);

// --gpu-memory, for verbs that run a model.
void add_gpu_memory(Verb verb, uint64_t& bytes);

// --watchdog, for verbs that answer.
void add_watchdog(Verb verb, std::string& mode);

// --kernel, for verbs that run a model.
void add_kernel(Verb verb, std::string& kernel);

}  // namespace doppler
