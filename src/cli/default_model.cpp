#include "cli/default_model.h"

#include "base/error.h"

namespace doppler {
namespace fs = std::filesystem;

fs::path default_model() {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  for (const fs::path& candidate : {fs::path("models/tiny"), program.parent_path().parent_path() / "models/tiny"}) {
    if (fs::exists(candidate / "manifest.json", ignored)) return candidate;
  }
  fail({ErrorCode::kUsage, "no model was named, and the one that ships with Doppler is not here", "models/tiny", "", "",
        "Name a model folder"});
}

fs::path node_program() {
  std::error_code ignored;
  const fs::path own = fs::read_symlink("/proc/self/exe", ignored).parent_path() / "node/bin/node";
  return fs::exists(own, ignored) ? own : "node";
}

}  // namespace doppler
