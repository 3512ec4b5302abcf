#include "base/cache_folder.h"

#include <algorithm>
#include <cstdlib>

namespace doppler {
namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

fs::path expand_home(const std::string& path) {
  const char* home = std::getenv("HOME");
  if (!home || (path != "~" && !path.starts_with("~/"))) return path;
  return fs::path(home) / fs::path(path.substr(std::min<size_t>(2, path.size())));
}

fs::path user_caches() {
  const std::string xdg = environment("XDG_CACHE_HOME");
  return xdg.empty() ? fs::path(environment("HOME")) / ".cache" : expand_home(xdg);
}

fs::path own_cache() {
  const std::string own = environment("DOPPLER_CACHE");
  return own.empty() ? user_caches() / "doppler" : expand_home(own);
}

}  // namespace doppler
