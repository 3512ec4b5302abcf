// Is what came out text at all? Speed without this is worth nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"

namespace doppler {

struct Quality {
  bool ok = true;
  std::vector<std::string> reasons;  // why not
  std::optional<double> token_match, perplexity;
  Json to_json() const;
};

// Not empty, not one token or a short cycle over and over, no flood of special tokens.
Quality judge_tokens(std::span<const int32_t> tokens, const std::function<bool(int32_t)>& special);

}  // namespace doppler
