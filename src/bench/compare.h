// Two measurements side by side: is one faster, and how sure is that?
#pragma once

#include "base/json.h"

namespace doppler {

struct Ratio {
  double value = 1, low = 1, high = 1;  // of the medians b / a; 95 % of resampled runs lie between low and high
  bool certain() const { return low > 1 || high < 1; }
};

// Runs of both, interleaved where they were (pairs are resampled together when there are as many of each).
Ratio ratio_of_medians(const std::vector<double>& a, const std::vector<double>& b);

// Two results of `bench inference --json`. Fails where they are none.
Json compare_results(const Json& a, const Json& b, const std::string& a_name, const std::string& b_name);
std::string comparison_text(const Json& comparison);

}  // namespace doppler
