#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer_spec.h"

namespace doppler {

// Runs the steps over valid UTF-8.
std::string run_normalizer(const std::vector<NormalizerStep>& steps, std::string_view text);

}  // namespace doppler
