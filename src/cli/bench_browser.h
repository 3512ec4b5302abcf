// The benchmark's workload in a browser: web/tools/bench.mjs drives Chromium and prints what the native one prints.
#pragma once

#include <string>

#include "bench/inference.h"

namespace doppler {

// Becomes the script, and so does not come back; fails where Node or the script is missing. `profile_dir` empty: a
// profile for this run alone.
[[noreturn]] void bench_in_browser(const std::string& model, const InferenceWorkload& workload,
                                   const std::string& profile_dir, bool json);

}  // namespace doppler
