#include "debug/bounds.h"

namespace doppler {
namespace {

bool is_float(DType type) { return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16; }
// Only ever as it was published: nothing is converted to it.
bool is_lossless(DType type) { return is_float(type) || type == DType::kMXFP4; }

}  // namespace

Bounds bounds_for(const Weights& weights, bool same_weights) {
  bool floats = true, lossless = true;
  for (const auto& [slot, tensor] : weights.all()) {
    floats = floats && is_float(tensor.dtype);
    lossless = lossless && is_lossless(tensor.dtype);
  }
  // 16-bit keys and values cost some 3e-4 in an attention step.
  if (floats) return same_weights ? Bounds{2e-2, 8e-4, 2e-2} : Bounds{4e-2, 5e-3, 0.1};
  // Products of quantised weights take 8-bit activations, which add a percent or so; other weights add more.
  return same_weights || lossless ? Bounds{0.3, 4e-2, 0.5} : Bounds{0.7, 0.3, 5};
}

}  // namespace doppler
