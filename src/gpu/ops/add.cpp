#include "gpu/ops/add.h"

#include "gpu/wgsl/add.h"

namespace doppler::gpu {
namespace {
constexpr uint32_t kThreads = 256, kEach = 4;  // as in ops/add.wgsl
}

Variant choose_add(const Capabilities&) { return {{}, {{"threads", kThreads}}}; }

void record_add(Recording& recording, const std::string& step, const BoundBuffer& a, const BoundBuffer& b,
                const BoundBuffer& out, uint64_t count) {
  const Capabilities& capabilities = recording.device().capabilities();
  recording.dispatch<wgsl::Add>(step, choose_add(capabilities), {.count = static_cast<uint32_t>(count)},
                                {.a = a, .b = b, .out = out},
                                linear_grid(div_up(count, kThreads * kEach), capabilities.limits));
}

}  // namespace doppler::gpu
