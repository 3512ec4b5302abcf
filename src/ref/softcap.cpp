#include <cmath>

#include "ref/ops.h"

namespace doppler::ref {

void softcap(In x, float cap, Out out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(cap * std::tanh(static_cast<double>(x[i]) / cap));
  }
}

}  // namespace doppler::ref
