#pragma once

#include <filesystem>

namespace doppler {

// models/tiny in the current folder, or beside the folder the program lies in. Fails with a sentence if neither is.
std::filesystem::path default_model();

}  // namespace doppler
