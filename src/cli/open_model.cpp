#include "cli/open_model.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/error.h"

namespace doppler {
namespace fs = std::filesystem;

fs::path program_path() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored);
}

fs::path default_model() {
  std::error_code ignored;
  for (const fs::path& candidate :
       {fs::path("models/tiny"), program_path().parent_path().parent_path() / "models/tiny"}) {
    if (fs::exists(candidate / "manifest.json", ignored)) return candidate;
  }
  fail({.code = ErrorCode::kUsage,
        .what = "no model was named, and the one that ships with Doppler is not here",
        .where = "models/tiny",
        .todo = "Name a model folder"});
}

fs::path node_program() {
  std::error_code ignored;
  const fs::path own = program_path().parent_path() / "node/bin/node";
  return fs::exists(own, ignored) ? own : "node";
}

LoadedModel open_model(const std::string& name) {
  const fs::path path = name.empty() ? default_model() : fs::path(name);
  LoadedModel model = LoadedModel::load(path);
  for (const std::string& note : model.notes) fmt::print(stderr, "doppler: {}: {}\n", path.string(), note);
  return model;
}

void add_gpu_memory(CLI::App& verb, uint64_t& bytes) {
  verb.add_option("--gpu-memory", bytes,
                  "The most that a model may take on a GPU: bytes, 512MiB or 8GiB; experts beyond that are fetched "
                  "when they are chosen")
      ->transform(CLI::AsSizeValue(false))
      ->check([](const std::string& value) { return value == "0" ? "must be more than nothing" : ""; });
}

}  // namespace doppler
