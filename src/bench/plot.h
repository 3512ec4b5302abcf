#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace doppler {

// An SVG of tokens a second against depth and against prompt length, one line a result (results of bench inference
// with sweeps). Fails if none of them has a sweep.
std::string plot_sweeps(const std::vector<Json>& results);

}  // namespace doppler
