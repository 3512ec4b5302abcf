#pragma once

#include "debug/compare.h"
#include "engine/backend.h"

namespace doppler {

// Writes the page of a debug run. `head` is "LAYER:HEAD", or empty for the first. `against` names the reference.
void write_debug_page(const std::filesystem::path& path, const std::string& head, const LoadedModel& model,
                      const BackendChoice& backend, const Stages& run, const Comparison* comparison,
                      const std::string& against);

}  // namespace doppler
