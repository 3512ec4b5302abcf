#include "gpu/webgpu/dawn_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/error.h"

namespace doppler::gpu {
namespace {

constexpr const char* kLibraryName = "libwebgpu_wrapper.so";

struct Library {
  WgpuFunctions functions;
  bool loaded = false;
  std::string why;
};

std::vector<std::string> candidates() {
  if (const char* chosen = std::getenv("DOPPLER_DAWN"); chosen != nullptr && *chosen != '\0') return {chosen};
  std::vector<std::string> paths;
  std::error_code ignored;
  // The program, and libdoppler.so where this code is a part of that: of a build folder, or as installed (PREFIX/bin,
  // PREFIX/lib or PREFIX/lib/ARCHITECTURE, with Dawn in PREFIX/lib/doppler).
  std::vector<std::filesystem::path> selves = {std::filesystem::read_symlink("/proc/self/exe", ignored)};
  Dl_info own{};
  static const char kHere = 0;
  if (dladdr(&kHere, &own) != 0 && own.dli_fname != nullptr)
    selves.push_back(std::filesystem::canonical(own.dli_fname, ignored));
  for (const std::filesystem::path& self : selves) {
    if (self.empty()) continue;
    const std::filesystem::path folder = self.parent_path(), up = folder.parent_path();
    for (const std::filesystem::path& place :
         {folder, folder / "dawn", up / "lib", up / "lib/doppler", folder / "doppler", up / "doppler"}) {
      if (std::filesystem::exists(place / kLibraryName, ignored)) paths.push_back((place / kLibraryName).string());
    }
  }
  paths.push_back(kLibraryName);
  return paths;
}

Library load() {
  Library library;
  void* handle = nullptr;
  std::string tried;
  for (const std::string& path : candidates()) {
    handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) break;
    const char* reason = dlerror();
    tried += fmt::format("{}{}", tried.empty() ? "" : "; ", reason != nullptr ? reason : path.c_str());
  }
  if (handle == nullptr) {
    library.why = tried;
    return library;
  }
#define DOPPLER_WGPU_LOAD(name)                                                                  \
  library.functions.name = reinterpret_cast<decltype(&wgpu##name)>(dlsym(handle, "wgpu" #name)); \
  if (library.functions.name == nullptr) {                                                       \
    library.why = "the library has no function wgpu" #name;                                      \
    return library;                                                                              \
  }
  DOPPLER_WGPU_FUNCTIONS(DOPPLER_WGPU_LOAD)
#undef DOPPLER_WGPU_LOAD
  library.loaded = true;
  return library;
}

const Library& library() {
  static const Library once = load();
  return once;
}

}  // namespace

const WgpuFunctions* find_wgpu(std::string* why) {
  if (library().loaded) return &library().functions;
  if (why != nullptr) *why = library().why;
  return nullptr;
}

const WgpuFunctions& wgpu() {
  std::string why;
  const WgpuFunctions* functions = find_wgpu(&why);
  if (functions == nullptr) {
    fail({.code = ErrorCode::kDevice,
          .what = "Dawn, the WebGPU library, is not here",
          .where = why,
          .expected = kLibraryName,
          .todo = "run tools/setup.sh dawn, set DOPPLER_DAWN to the library's path, or use "
                  "--backend cpu"});
  }
  return *functions;
}

}  // namespace doppler::gpu
