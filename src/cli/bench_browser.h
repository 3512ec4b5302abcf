// `doppler bench inference --surface browser`: the same workload in a page of headless Chromium.
#pragma once

#include <string>

#include "bench/inference.h"

namespace doppler {

// For InferenceWorkload::surface. Fails where what drives the browser is missing. `profile_dir` empty: a profile for
// this run alone.
MakeSurface browser_for_bench(const std::string& profile_dir);

// Fails for a workload that a page cannot run, and says why.
void check_for_browser(const std::string& model, const InferenceWorkload& workload);

}  // namespace doppler
