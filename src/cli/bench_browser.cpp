#include "cli/bench_browser.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/error.h"

namespace doppler {
namespace fs = std::filesystem;

void bench_in_browser(const std::string& model, const InferenceWorkload& workload, const std::string& profile_dir,
                      bool json) {
  std::error_code ignored;
  const fs::path build = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const fs::path script = build.parent_path() / "web/tools/bench.mjs";
  if (!fs::exists(script, ignored)) {
    fail({ErrorCode::kUsage, "the browser's part of Doppler is not here", script.string(), "", "",
          "Run the program from its source tree's build folder"});
  }
  std::vector<std::string> words = {"node", script.string(), model, "--build", build.string()};
  const auto add = [&](const char* name, const std::string& value) { words.insert(words.end(), {name, value}); };
  add("--prompt-tokens", std::to_string(workload.prompt_tokens));
  add("--tokens", std::to_string(workload.tokens));
  add("--runs", std::to_string(workload.runs));
  add("--context", std::to_string(workload.context));
  add("--decode-batch", std::to_string(workload.decode_batch));
  if (!profile_dir.empty()) add("--profile-dir", profile_dir);
  if (json) words.push_back("--json");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp("node", argv.data());
  fail({ErrorCode::kFile, "node cannot be started", "bench inference --surface browser", "", std::strerror(errno),
        "Install Node.js"});
}

}  // namespace doppler
