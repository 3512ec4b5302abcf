#include "gpu/ops/activations.h"

#include "base/error.h"
#include "gpu/wgsl/activations.h"

namespace doppler::gpu {
namespace {

constexpr uint32_t kThreads = 256;

// Pieces of 32 columns, an even number.
uint64_t padded_pieces(uint64_t cols) { return uint64_t{div_up(cols, 64)} * 2; }

uint64_t eights(uint64_t cols) { return uint64_t{div_up(cols, 64)} * 8; }  // of 8 columns, of a token

}  // namespace

uint64_t quantized_values_bytes(uint64_t tokens, uint64_t cols) { return tokens * padded_pieces(cols) * 32; }
uint64_t quantized_scales_bytes(uint64_t tokens, uint64_t cols) { return tokens * padded_pieces(cols) * 8; }

Variant choose_quantize_activations(const Capabilities& capabilities, uint64_t cols) {
  if (!capabilities.int8_dot) {
    fail({.code = ErrorCode::kInternal,
          .what = "activations of 8 bits on a device without integer dot products",
          .where = "quantize_activations"});
  }
  return {{}, {{"threads", kThreads}, {"vectors", cols % 4 == 0 ? 1 : 0}}};
}

void record_quantize_activations(Recording& recording, const std::string& step, const BoundBuffer& x, uint64_t tokens,
                                 uint64_t cols, const QuantizedActivations& out) {
  const Capabilities& capabilities = recording.device().capabilities();
  const uint64_t pieces = padded_pieces(cols);
  recording.dispatch<wgsl::QuantizeActivations>(step, choose_quantize_activations(capabilities, cols),
                                                {.tokens = static_cast<uint32_t>(tokens),
                                                 .cols = static_cast<uint32_t>(cols),
                                                 .pieces = static_cast<uint32_t>(pieces)},
                                                {.x = x, .values = out.values, .scales = out.scales},
                                                linear_grid(div_up(tokens * pieces, kThreads), capabilities.limits));
}

uint64_t f16_values_bytes(uint64_t tokens, uint64_t cols) { return tokens * eights(cols) * 16; }
uint64_t f16_scales_bytes(uint64_t tokens) { return tokens * sizeof(float); }

Variant choose_activations_to_f16(const Capabilities&, uint64_t cols) {
  return {{}, {{"threads", cols <= 1024 ? 64 : 256}, {"vectors", cols % 4 == 0 ? 1 : 0}}};
}

void record_activations_to_f16(Recording& recording, const std::string& step, const BoundBuffer& x, uint64_t tokens,
                               uint64_t cols, const F16Activations& out) {
  const Capabilities& capabilities = recording.device().capabilities();
  recording.dispatch<wgsl::ActivationsToF16>(step, choose_activations_to_f16(capabilities, cols),
                                             {.tokens = static_cast<uint32_t>(tokens),
                                              .cols = static_cast<uint32_t>(cols),
                                              .eights = static_cast<uint32_t>(eights(cols))},
                                             {.x = x, .values = out.values, .scales = out.scales},
                                             linear_grid(tokens, capabilities.limits));
}

}  // namespace doppler::gpu
