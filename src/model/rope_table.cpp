// Every kind of rope scaling ends in the same two things: a frequency for each pair of dims and one magnitude.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/model_config.h"

namespace doppler {
namespace {

// llama3: wavelengths longer than the original context / low_freq_factor are stretched by `factor`, those shorter
// than original context / high_freq_factor are kept, and a linear blend lies between.
double llama3_frequency(const RopeConfig& rope, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength > rope.original_context / rope.low_freq_factor) return frequency / rope.factor;
  if (wavelength < rope.original_context / rope.high_freq_factor) return frequency;
  const double keep =
      (rope.original_context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - keep) * frequency / rope.factor + keep * frequency;
}

// YaRN: the (fractional) pair index whose angle makes `turns` turns over the original context.
double yarn_pair(const RopeConfig& rope, int dims, double turns) {
  return dims * std::log(rope.original_context / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
}

double yarn_frequency(const RopeConfig& rope, int dims, int pair, double frequency) {
  double low = yarn_pair(rope, dims, rope.beta_fast), high = yarn_pair(rope, dims, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1.0);
  if (low == high) high += 0.001;
  const double stretched = std::clamp((pair - low) / (high - low), 0.0, 1.0);
  return stretched * frequency / rope.factor + (1 - stretched) * frequency;
}

double default_magnitude(const RopeConfig& rope) {
  if (rope.factor <= 1) return 1;
  if (rope.scaling == RopeScaling::kYarn) return 0.1 * std::log(rope.factor) + 1;
  return std::sqrt(1 + std::log(rope.factor) / std::log(rope.original_context));
}

}  // namespace

int rotary_dims(const RopeConfig& rope, int head_dim) {
  return rope.scaling == RopeScaling::kProportional ? head_dim : static_cast<int>(head_dim * rope.rotated);
}

RopeTable make_rope_table(const RopeConfig& rope, int head_dim, int context) {
  RopeTable table;
  const int dims = rotary_dims(rope, head_dim);
  const std::vector<double>& factors = context > rope.original_context ? rope.long_factors : rope.short_factors;
  for (int i = 0; i < dims / 2; ++i) {
    double frequency = std::pow(rope.theta, -2.0 * i / dims);
    switch (rope.scaling) {
      case RopeScaling::kNone: break;
      case RopeScaling::kLinear: frequency /= rope.factor; break;
      case RopeScaling::kLlama3: frequency = llama3_frequency(rope, frequency); break;
      case RopeScaling::kYarn: frequency = yarn_frequency(rope, dims, i, frequency); break;
      case RopeScaling::kLongRope: frequency /= factors[static_cast<size_t>(i)]; break;
      case RopeScaling::kProportional:
        if (2 * i >= static_cast<int>(rope.rotated * head_dim)) frequency = 0;
        break;
    }
    table.inv_freq.push_back(static_cast<float>(frequency));
  }
  if (rope.scaling == RopeScaling::kYarn || rope.scaling == RopeScaling::kLongRope) {
    table.magnitude = static_cast<float>(rope.attention_factor > 0 ? rope.attention_factor : default_magnitude(rope));
  }
  return table;
}

}  // namespace doppler
