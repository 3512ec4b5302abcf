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
double yarn_pair(const RopeConfig& rope, int head_dim, double turns) {
  return head_dim * std::log(rope.original_context / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
}

double yarn_frequency(const RopeConfig& rope, int head_dim, int pair, double frequency) {
  double low = yarn_pair(rope, head_dim, rope.beta_fast), high = yarn_pair(rope, head_dim, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, head_dim - 1.0);
  if (low == high) high += 0.001;
  const double stretched = std::clamp((pair - low) / (high - low), 0.0, 1.0);
  return stretched * frequency / rope.factor + (1 - stretched) * frequency;
}

}  // namespace

RopeTable make_rope_table(const RopeConfig& rope, int head_dim) {
  RopeTable table;
  for (int i = 0; i < head_dim / 2; ++i) {
    double frequency = std::pow(rope.theta, -2.0 * i / head_dim);
    switch (rope.scaling) {
      case RopeScaling::kNone: break;
      case RopeScaling::kLinear: frequency /= rope.factor; break;
      case RopeScaling::kLlama3: frequency = llama3_frequency(rope, frequency); break;
      case RopeScaling::kYarn: frequency = yarn_frequency(rope, head_dim, i, frequency); break;
    }
    table.inv_freq.push_back(static_cast<float>(frequency));
  }
  if (rope.scaling == RopeScaling::kYarn) {
    const double magnitude = rope.attention_factor > 0 ? rope.attention_factor
                             : rope.factor > 1         ? 0.1 * std::log(rope.factor) + 1
                                                       : 1;
    table.magnitude = static_cast<float>(magnitude);
  }
  return table;
}

}  // namespace doppler
