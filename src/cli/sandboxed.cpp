#include "cli/sandboxed.h"

#include <cstdlib>

#include "base/cache_folder.h"
#include "base/say.h"
#include "cli/open_model.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

void append(std::vector<fs::path>& to, const std::vector<fs::path>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

Sandbox sandbox_for(const std::vector<fs::path>& models, const std::string& backend) {
  Sandbox sandbox = {.readable = system_files()};
  for (const fs::path& model : models) {
    // The other pieces of a GGUF in several files lie beside the one that was named.
    const bool piece = model.filename().string().find("-of-") != std::string::npos && fs::is_regular_file(model);
    sandbox.readable.push_back(piece ? fs::absolute(model).parent_path() : model);
  }
  sandbox.readable.push_back(own_cache());  // hashes that are known of shards; new ones are not remembered
  if (backend == "auto" || backend == "webgpu") {
    append(sandbox.readable, gpu_files());
    append(sandbox.devices, gpu_devices());
    const fs::path folder = program_path().parent_path();
    append(sandbox.readable, {folder, folder.parent_path() / "lib"});  // where the WebGPU library is
    if (const char* chosen = std::getenv("DOPPLER_DAWN"); chosen != nullptr) sandbox.readable.emplace_back(chosen);
  }
  return sandbox;
}

void sandbox_now(const Sandbox& sandbox) { say_dim("[sandboxed by {}]", enter_sandbox(sandbox)); }

}  // namespace doppler
