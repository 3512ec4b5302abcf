#include "gpu/tap.h"

#include <set>

#include "gpu/wgsl/tap.h"

namespace doppler::gpu {
namespace {
constexpr uint32_t kThreads = 256;
}

Variant choose_tap(const Capabilities&) { return {{}, {{"threads", kThreads}}}; }

TapSteps alone_for(const Plan& plan, const TapSteps& tapped) {
  std::set<int> layers;
  for (const Step& step : plan.steps) {
    if (taps(tapped, step)) layers.insert(step.layer);
  }
  TapSteps alone;
  for (const Step& step : plan.steps) {
    if (layers.count(step.layer) > 0) alone.insert(step.name);
  }
  return alone;
}

DecodeTaps::DecodeTaps(GpuContext& context, const TapSteps* tapped) : c_(context) {
  if (!tapped) return;
  for (const Step& step : c_.plan.steps) {
    // Turned keys exist in the cache only.
    const bool keys = std::holds_alternative<Rope>(step.op) && step.name.find("k_rope") != std::string::npos;
    if (keys || !taps(*tapped, step)) continue;
    offsets_[step.output] = stride_;
    stride_ += static_cast<uint32_t>(c_.width(step.output));
  }
  if (stride_ > 0) rows_ = c_.device.create_buffer("taps", static_cast<uint64_t>(stride_) * kMostDecodeBatch * 4);
}

void DecodeTaps::record(Recording& recording, const Step& step, const BoundBuffer& value) const {
  const auto offset = offsets_.find(step.output);
  if (offset == offsets_.end()) return;
  const Capabilities& capabilities = c_.device.capabilities();
  const auto count = static_cast<uint32_t>(c_.width(step.output));
  recording.dispatch<wgsl::Tap>(
      "tap", choose_tap(capabilities), {.count = count, .offset = offset->second, .stride = stride_},
      {.state = c_.state, .x = value, .taps = rows_}, linear_grid(div_up(count, kThreads), capabilities.limits));
}

void DecodeTaps::hand_over(int count, int position, const Tap& tap) const {
  if (!rows_) return;
  const std::vector<float> rows =
      gpu::read<float>(c_.device, rows_, static_cast<size_t>(count) * static_cast<size_t>(stride_));
  for (int token = 0; token < count; ++token) {
    for (const Step& step : c_.plan.steps) {
      const auto offset = offsets_.find(step.output);
      if (offset == offsets_.end()) continue;
      const size_t at = static_cast<size_t>(token) * stride_ + offset->second;
      tap(step, std::span(rows).subspan(at, static_cast<size_t>(c_.width(step.output))), 1, position + token);
    }
  }
}

}  // namespace doppler::gpu
