#include "gpu/ops/halve_activations.h"

#include "gpu/wgsl/halve_activations.h"

namespace doppler::gpu {
namespace {

uint64_t eights(uint64_t cols) { return uint64_t{div_up(cols, 64)} * 8; }  // of 8 columns, of a token

}  // namespace

uint64_t halved_values_bytes(uint64_t tokens, uint64_t cols) { return tokens * eights(cols) * 16; }
uint64_t halved_scales_bytes(uint64_t tokens) { return tokens * sizeof(float); }

Variant choose_halve_activations(const Capabilities&, uint64_t cols) {
  return {{}, {{"threads", cols <= 1024 ? 64 : 256}, {"vectors", cols % 4 == 0 ? 1 : 0}}};
}

void record_halve_activations(Recording& recording, const std::string& step, const BoundBuffer& x, uint64_t tokens,
                              uint64_t cols, const HalvedActivations& out) {
  const Capabilities& capabilities = recording.device().capabilities();
  recording.dispatch<wgsl::HalveActivations>(step, choose_halve_activations(capabilities, cols),
                                             {.tokens = static_cast<uint32_t>(tokens),
                                              .cols = static_cast<uint32_t>(cols),
                                              .eights = static_cast<uint32_t>(eights(cols))},
                                             {.x = x, .values = out.values, .scales = out.scales},
                                             linear_grid(tokens, capabilities.limits));
}

}  // namespace doppler::gpu
