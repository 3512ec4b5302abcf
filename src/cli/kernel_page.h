#pragma once

#include <string>

#include "base/json.h"

namespace doppler {

// One self-contained page of what `doppler bench kernels --json` prints: for each operation a table with bars, and what
// its cases reach over the bytes they move, beside a plain copy.
std::string kernel_page(const Json& results);

}  // namespace doppler
