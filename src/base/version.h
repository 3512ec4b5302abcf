// The version of everything here: the program, the library and the npm package.
#pragma once

#include <string_view>

namespace doppler {

inline constexpr std::string_view kVersion = "0.1.0";  // CMakeLists.txt reads it here

}  // namespace doppler
