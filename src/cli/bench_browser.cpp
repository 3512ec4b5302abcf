#include "cli/bench_browser.h"

#include "base/error.h"
#include "base/files.h"
#include "bench/browser_surface.h"
#include "cli/default_model.h"

namespace doppler {
namespace fs = std::filesystem;

MakeSurface browser_for_bench(const std::string& profile_dir) {
  std::error_code ignored;
  const fs::path build = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const fs::path script = build.parent_path() / "web/tools/bench.mjs";
  if (!file_exists(script)) {
    fail({ErrorCode::kUsage, "the browser's part of Doppler is not here", script.string(), "", "",
          "Run the program from its source tree's build folder"});
  }
  const BrowserOptions options{{node_program().string(), script.string(), "--build", build.string()}, profile_dir};
  return [options](const fs::path& model, const InferenceWorkload& workload, int context, const Told& progress) {
    return browser_surface(options, model, workload, context, progress);
  };
}

void check_for_browser(const std::string& model, const InferenceWorkload& workload) {
  const auto refuse = [](const char* option, const char* why) {
    fail({ErrorCode::kUsage, std::string(option) + " and --surface browser do not go together: " + why,
          "bench inference", "", "", ""});
  };
  if (workload.threads > 0) refuse("--threads", "the page's engine computes on the GPU alone");
  if (workload.backend != "auto" && workload.backend != "webgpu") {
    refuse("--backend", "the page's engine has WebGPU and no other backend");
  }
  if (workload.device >= 0) refuse("--device", "a page cannot choose among GPUs, the browser does");
  if (workload.gpu_memory > 0) refuse("--gpu-memory", "experts are paged from mapped files, which a page has not");
  if (!file_exists(fs::path(model) / "manifest.json") && file_exists(model)) {
    fail({ErrorCode::kUsage, "a page loads RDRR folders only", model, "a folder with manifest.json", "a single file",
          "Make one of it: doppler convert"});
  }
}

}  // namespace doppler
