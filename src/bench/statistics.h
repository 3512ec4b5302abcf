// Numbers about numbers. Machines are noisy: we speak of medians and percentiles, not of means; and of two measurements
// side by side, is one faster, and how sure is that?
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace doppler {

// Linear interpolation between the two nearest samples; p in 0 … 100. 0 for no samples.
double percentile(std::vector<double> samples, double p);
inline double median(std::vector<double> samples) { return percentile(std::move(samples), 50); }

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
