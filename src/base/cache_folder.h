// Where a user's caches are.
#pragma once

#include <filesystem>
#include <string>

namespace doppler {

std::string environment(const char* name);  // the variable's value; empty where it is not set

// A path as a person types it: ~/ is the home folder.
std::filesystem::path expand_home(const std::string& path);

std::filesystem::path user_caches();  // XDG_CACHE_HOME, else ~/.cache
std::filesystem::path own_cache();    // DOPPLER_CACHE, else doppler in those

}  // namespace doppler
