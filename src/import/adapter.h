// LoRA adapters for a model that runs, from a PEFT folder or from a GGUF file of llama.cpp's: their thin matrices by
// the slots of the model's plan, whatever form the model itself lies in.
#pragma once

#include "model/adapters.h"
#include "model/plan.h"

namespace doppler {

// Fails with a sentence where it is no adapter, asks for more than thin products, does not fit the model, or takes more
// than `memory` bytes.
Adapter load_adapter(const AdapterSpec& spec, const ModelConfig& config, const Plan& plan, uint64_t memory);

// What clients call it: the folder's name, or the file's without its ending.
std::string name_of_adapter(const std::filesystem::path& path);

}  // namespace doppler
