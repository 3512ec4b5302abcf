// Ranges that figures must lie in. Ratios only: absolute times do not travel from machine to machine.
#pragma once

#include "bench/inference.h"

namespace doppler {

struct BaselineVerdict {
  std::string name;
  double value = 0, low = 0, high = 0;
  bool ok = false;
};

// Runs every case of a baselines file whose backend is here, and judges its ratios. `root` is where the file's model
// paths start. Fails for a file that is none, or holds no case.
std::vector<BaselineVerdict> check_baselines(const Json& baselines, const std::filesystem::path& root,
                                             const std::string& backend, const OnStatus& progress);

}  // namespace doppler
