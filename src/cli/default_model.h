#pragma once

#include <filesystem>

namespace doppler {

// models/tiny in the current folder, or beside the folder the program lies in. Fails with a sentence if neither is.
std::filesystem::path default_model();

// Node for the page's scripts and for llama.cpp: the one that tools/setup.sh put beside the program, else PATH's.
std::filesystem::path node_program();

}  // namespace doppler
