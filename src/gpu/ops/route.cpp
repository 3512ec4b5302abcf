#include "gpu/ops/route.h"

#include <fmt/format.h>

#include "base/error.h"
#include "gpu/wgsl/combine.h"
#include "gpu/wgsl/route.h"

namespace doppler::gpu {
namespace {
constexpr uint32_t kRouteThreads = 64, kCombineThreads = 256;
}

Variant choose_route(const Capabilities&) { return {{}, {{"threads", kRouteThreads}}}; }
Variant choose_combine(const Capabilities&) { return {{}, {{"threads", kCombineThreads}}}; }

void record_route(Recording& recording, const std::string& step, const BoundBuffer& scores, const BoundBuffer& out,
                  uint64_t tokens, uint32_t experts, uint32_t k) {
  if (experts > kMostExperts || k > kMostChosen || k > experts) {
    fail({ErrorCode::kUnsupported, "the WebGPU backend has no room for so many experts", step,
          fmt::format("{} of up to {}", kMostChosen, kMostExperts), fmt::format("{} of {}", k, experts),
          "Use --backend cpu"});
  }
  const Capabilities& capabilities = recording.device().capabilities();
  recording.dispatch<wgsl::Route>(step, choose_route(capabilities),
                                  {.tokens = static_cast<uint32_t>(tokens), .experts = experts, .k = k},
                                  {.scores = scores, .out = out}, linear_grid(tokens, capabilities.limits));
}

void record_combine(Recording& recording, const std::string& step, const BoundBuffer& experts, const BoundBuffer& route,
                    const BoundBuffer& out, uint64_t tokens, uint32_t width, uint32_t k) {
  const Capabilities& capabilities = recording.device().capabilities();
  recording.dispatch<wgsl::Combine>(step, choose_combine(capabilities),
                                    {.tokens = static_cast<uint32_t>(tokens), .width = width, .k = k},
                                    {.experts = experts, .route = route, .out = out},
                                    linear_grid(div_up(tokens * width, kCombineThreads), capabilities.limits));
}

}  // namespace doppler::gpu
