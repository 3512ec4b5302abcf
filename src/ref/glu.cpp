#include <algorithm>
#include <cmath>
#include <numbers>

#include "ref/ops.h"

namespace doppler::ref {

float glu(const Glu& op, float gate, float up) {
  const double g = gate, u = up;
  switch (op.activation) {
    case Activation::kGeluTanh: {
      const double inner = std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g);
      return static_cast<float>(0.5 * g * (1 + std::tanh(inner)) * u);
    }
    case Activation::kSilu: return static_cast<float>(g / (1 + std::exp(-g)) * u);
    case Activation::kClampedSwiglu: {
      const double limit = op.limit;
      const double low = std::min(g, limit), linear = std::clamp(u, -limit, limit);
      return static_cast<float>(low / (1 + std::exp(-op.alpha * low)) * (linear + 1));
    }
  }
  return NAN;
}

void glu(const Glu& op, In gate, In up, Out out) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = glu(op, gate[i], up[i]);
}

void glu_interleaved(const Glu& op, In gate_up, Out out) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = glu(op, gate_up[2 * i], gate_up[2 * i + 1]);
}

}  // namespace doppler::ref
