// --sandbox: what a verb that reads a stranger's files still reaches.
#pragma once

#include <string>
#include <vector>

#include "base/sandbox.h"

namespace doppler {

// A sandbox in which these models (paths on this machine) can be read, and run on this backend.
Sandbox sandbox_for(const std::vector<std::filesystem::path>& models, const std::string& backend);

// Enters it, and says so on standard error.
void sandbox_now(const Sandbox& sandbox);

}  // namespace doppler
