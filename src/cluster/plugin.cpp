#include "cluster/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"

namespace doppler {

const void* load_plugin(const PluginName& name) {
  std::vector<std::string> places;
  if (const char* told = std::getenv(name.variable)) {
    places = {told};
  } else {
    std::error_code ignored;
    const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
    places = {folder / name.file, folder.parent_path() / "lib/doppler" / name.file};
  }
  std::string why;
  for (const std::string& place : places) {
    // RTLD_GLOBAL: Open MPI's own plug-ins look for its symbols.
    void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
      why += fmt::format("{}{}", why.empty() ? "" : "; ", dlerror());
      continue;
    }
    const auto get = reinterpret_cast<const void* (*)()>(dlsym(library, name.symbol));
    const void* found = get ? get() : nullptr;
    if (found && *static_cast<const int*>(found) == name.version) return found;
    why += fmt::format("{}{} is of another version of Doppler", why.empty() ? "" : "; ", place);
  }
  fail(
      {.code = ErrorCode::kUnsupported,
       .what = fmt::format("{}, and its part for that is not here", name.needed),
       .where = name.file,
       .got = why,
       .todo = fmt::format("Install {} and build Doppler again, or name the file in {}", name.package, name.variable)});
}

}  // namespace doppler
