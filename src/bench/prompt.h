#pragma once

#include <cstdint>
#include <vector>

#include "engine/random.h"

namespace doppler {

// The same tokens on every machine and in every run.
inline std::vector<int32_t> random_prompt(int tokens, int vocab) {
  constexpr uint64_t kSeed = 1;
  std::vector<int32_t> ids;
  for (int i = 0; i < tokens; ++i) {
    ids.push_back(static_cast<int32_t>(philox(kSeed, static_cast<uint64_t>(i))[0] % static_cast<uint32_t>(vocab)));
  }
  return ids;
}

}  // namespace doppler
