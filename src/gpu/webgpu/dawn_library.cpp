#include "gpu/webgpu/dawn_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/files.h"

namespace doppler::gpu {
namespace {

constexpr const char* kLibraryName = "libwebgpu_wrapper.so";
// Of the library in the package that tools/setup.sh pins.
constexpr const char* kLibrarySha256 = "3190c3777f2c07fcf6a0640833cbf5d0cde859dc53aed6d9083946d093198788";

struct Library {
  WgpuFunctions functions;
  bool loaded = false;
  std::string why;
};

struct Candidate {
  std::string path;
  bool ours;  // lies where only the pinned library belongs; another one is named by DOPPLER_DAWN, or is the system's
};

std::vector<Candidate> candidates() {
  if (const char* chosen = std::getenv("DOPPLER_DAWN"); chosen != nullptr && *chosen != '\0') return {{chosen, false}};
  std::vector<Candidate> paths;
#ifdef DOPPLER_DAWN_SDK
  constexpr bool kPinned = false;
#else
  constexpr bool kPinned = true;
#endif
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
      if (std::filesystem::exists(place / kLibraryName, ignored))
        paths.push_back({(place / kLibraryName).string(), kPinned});
    }
  }
  paths.push_back({kLibraryName, false});
  return paths;
}

// Empty: it is the pinned library. What is loaded runs, so its bytes are looked at before.
std::string another_library(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> piece(1 << 20);
  Sha256 hash;
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0)
    hash.update(std::as_bytes(std::span(piece.data(), static_cast<size_t>(file.gcount()))));
  const std::string got = hash.finish();
  if (got == kLibrarySha256) return "";
  return fmt::format(
      "{} is not the library that Doppler comes with (sha256 {}, expected {}); DOPPLER_DAWN names another", path, got,
      kLibrarySha256);
}

Library load() {
  Library library;
  void* handle = nullptr;
  std::string tried;
  for (const auto& [path, ours] : candidates()) {
    std::string problem = ours ? another_library(path) : "";
    if (problem.empty()) {
      handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle != nullptr) break;
      const char* reason = dlerror();
      problem = reason != nullptr ? reason : path;
    }
    tried += (tried.empty() ? "" : "; ") + problem;
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

std::string wgpu_path() {
  Dl_info from{};
  const bool known =
      library().loaded && dladdr(reinterpret_cast<void*>(library().functions.CreateInstance), &from) != 0;
  return known && from.dli_fname != nullptr ? from.dli_fname : "";
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
