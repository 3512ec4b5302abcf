#include "gpu/ops/copy.h"

#include "gpu/wgsl/copy.h"

namespace doppler::gpu {
namespace {
constexpr uint32_t kThreads = 256, kEach = 4;  // as in ops/copy.wgsl
}

Variant choose_copy(const Capabilities&) { return {{}, {{"threads", kThreads}}}; }

void record_copy(Recording& recording, const std::string& step, const BoundBuffer& from, const BoundBuffer& to,
                 uint64_t bytes) {
  const Capabilities& capabilities = recording.device().capabilities();
  const uint64_t words = bytes / 16;
  recording.dispatch<wgsl::Copy>(step, choose_copy(capabilities), {.count = static_cast<uint32_t>(words)},
                                 {.input = from, .out = to},
                                 linear_grid(div_up(words, kThreads * kEach), capabilities.limits));
}

}  // namespace doppler::gpu
