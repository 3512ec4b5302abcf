#pragma once

#include "convert/convert.h"

namespace doppler {

// From a GGUF file to an artefact; `target` as final_name() gives it. Called by convert().
ArtefactReport convert_gguf(const std::filesystem::path& source, const std::filesystem::path& target,
                            const ConvertOptions& options);

}  // namespace doppler
