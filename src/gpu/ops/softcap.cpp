#include "gpu/ops/softcap.h"

#include "gpu/wgsl/softcap.h"

namespace doppler::gpu {
namespace {
constexpr uint32_t kThreads = 256;
}

Variant choose_softcap(const Capabilities&) { return {{}, {{"threads", kThreads}}}; }

void record_softcap(Recording& recording, const std::string& step, const BoundBuffer& x, const BoundBuffer& out,
                    uint64_t count, float cap) {
  const Capabilities& capabilities = recording.device().capabilities();
  recording.dispatch<wgsl::Softcap>(step, choose_softcap(capabilities),
                                    {.count = static_cast<uint32_t>(count), .cap = cap}, {.x = x, .out = out},
                                    linear_grid(div_up(count, kThreads), capabilities.limits));
}

}  // namespace doppler::gpu
