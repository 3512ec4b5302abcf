// Numbers about numbers. Machines are noisy: we speak of medians and percentiles, not of means.
#pragma once

#include <vector>

namespace doppler {

// Linear interpolation between the two nearest samples; p in 0 … 100. 0 for no samples.
double percentile(std::vector<double> samples, double p);
inline double median(std::vector<double> samples) { return percentile(std::move(samples), 50); }

}  // namespace doppler
