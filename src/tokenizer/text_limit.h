// How long a text may be at any point of its way to ids: positions in it are 32 bits wide.
#pragma once

#include <cstddef>
#include <string>

#include "base/error.h"

namespace doppler {

inline constexpr size_t kLongestText = size_t{1} << 30;

inline void check_length(size_t bytes) {
  if (bytes > kLongestText) {
    fail({ErrorCode::kUsage, "this text is too long to encode at once", "", "at most 1 GiB on its way to tokens",
          std::to_string(bytes) + " bytes", "Encode it in parts"});
  }
}

}  // namespace doppler
