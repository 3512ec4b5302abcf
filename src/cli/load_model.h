#pragma once

#include <filesystem>

#include "engine/loaded_model.h"

namespace doppler {

// A model from an RDRR folder or a GGUF file. What had to be done to a GGUF's weights is said on standard error.
LoadedModel load_model(const std::filesystem::path& path);

}  // namespace doppler
