#include "gpu/ops/rope.h"

#include "gpu/wgsl/rope.h"

namespace doppler::gpu {
namespace {
constexpr uint32_t kThreads = 256;
}

Variant choose_rope(const Capabilities&) { return {{}, {{"threads", kThreads}}}; }

void record_rope(Recording& recording, const std::string& step, const RopeShape& shape, const BoundBuffer& state,
                 const BoundBuffer& table, const BoundBuffer& x, const BoundBuffer& out) {
  const Capabilities& capabilities = recording.device().capabilities();
  const uint64_t pairs = uint64_t{shape.tokens} * shape.heads * shape.head_dim / 2;
  recording.dispatch<wgsl::Rope>(
      step, choose_rope(capabilities), {.tokens = shape.tokens, .heads = shape.heads, .head_dim = shape.head_dim},
      {.state = state, .rope = table, .x = x, .out = out}, linear_grid(div_up(pairs, kThreads), capabilities.limits));
}

}  // namespace doppler::gpu
