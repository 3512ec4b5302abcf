// families/*.json as the build found them.
#pragma once

#include <span>
#include <string_view>

namespace doppler {

struct EmbeddedFamily {
  std::string_view file, text;
};
std::span<const EmbeddedFamily> embedded_families();

}  // namespace doppler
