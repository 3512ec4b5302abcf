// A page of headless Chromium as the place where a model runs. A script drives it; we tell the script what to do.
#pragma once

#include "bench/surface.h"

namespace doppler {

struct BrowserOptions {
  std::vector<std::string> command;   // web/tools/bench.mjs, which answers JSON lines
  std::filesystem::path profile_dir;  // the browser's profile, kept; empty: one for this run alone
};

// Starts the browser and loads the model in its page.
std::unique_ptr<BenchSurface> browser_surface(const BrowserOptions& options, const std::filesystem::path& model,
                                              const InferenceWorkload& workload, int context, const Told& progress);

}  // namespace doppler
