#include "gpu/ops/embed.h"

#include "gpu/wgsl/embed.h"

namespace doppler::gpu {
namespace {
constexpr uint32_t kThreads = 64;
}

Variant choose_embed(const Capabilities&, DType dtype) {
  return {{{"weights", std::string(kernel_name(dtype))}}, {{"threads", kThreads}}};
}

void record_embed(Recording& recording, const std::string& step, const Weight& matrix, const BoundBuffer& tokens,
                  const BoundBuffer& out, uint64_t count, float scale, uint32_t first_token) {
  const Capabilities& capabilities = recording.device().capabilities();
  const uint32_t pieces = div_up(static_cast<uint64_t>(matrix.cols), kPiece);
  for (const WeightPart& part : matrix.parts) {
    recording.dispatch<wgsl::Embed>(
        step, choose_embed(capabilities, matrix.dtype),
        {.tokens = static_cast<uint32_t>(count),
         .width = static_cast<uint32_t>(matrix.cols),
         .pieces = pieces,
         .stride = static_cast<uint32_t>(matrix.stride / 16),
         .first_row = static_cast<uint32_t>(part.first_row),
         .rows = static_cast<uint32_t>(part.rows),
         .scale = scale,
         .first_token = first_token},
        {.tokens = tokens, .w2 = part.bound(matrix.stride), .w4 = part.bound(matrix.stride), .out = out},
        linear_grid(div_up(count * pieces * 8, kThreads), capabilities.limits));
  }
}

}  // namespace doppler::gpu
