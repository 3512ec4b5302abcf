#include "gpu/ops/glu.h"

#include "gpu/wgsl/glu.h"

namespace doppler::gpu {
namespace {

constexpr uint32_t kThreads = 256, kEach = 4;  // as in ops/glu.wgsl

double activation_number(Activation activation) {
  switch (activation) {
    case Activation::kGeluTanh: return 0;
    case Activation::kSilu: return 1;
    case Activation::kClampedSwiglu: return 2;
  }
  return -1;
}

}  // namespace

Variant choose_glu(const Capabilities&, const Glu& op) {
  return {{},
          {{"threads", kThreads},
           {"activation", activation_number(op.activation)},
           {"interleaved", op.interleaved ? 1 : 0}}};
}

void record_glu(Recording& recording, const std::string& step, const Glu& op, const BoundBuffer& gate,
                const BoundBuffer& up, const BoundBuffer& out, uint64_t count) {
  const Capabilities& capabilities = recording.device().capabilities();
  recording.dispatch<wgsl::Glu>(step, choose_glu(capabilities, op),
                                {.count = static_cast<uint32_t>(count), .limit = op.limit, .alpha = op.alpha},
                                {.gate = gate, .up = op.interleaved ? gate : up, .out = out},
                                linear_grid(div_up(count, kThreads * kEach), capabilities.limits));
}

}  // namespace doppler::gpu
