#include "model/state_layout.h"

#include <algorithm>

namespace doppler {
namespace {

constexpr size_t kPrefixBytes = 256 << 20;             // of the copies that nobody holds, at most …
constexpr size_t kMinPrefixes = 2, kMaxPrefixes = 64;  // … but not fewer than these

}  // namespace

StateLayout make_state_layout(const Plan& plan) {
  StateLayout layout;
  const auto add = [&](int number, size_t floats) {
    const size_t end = static_cast<size_t>(number) + 1;
    if (layout.floats.size() < end) layout.floats.resize(end);
    layout.floats[end - 1] = floats;
  };
  for (const Step& step : plan.steps) {
    if (const auto* conv = std::get_if<ShortConv>(&step.op)) {
      add(conv->state, static_cast<size_t>(conv->kernel - 1) * static_cast<size_t>(conv->channels));
    } else if (const auto* delta = std::get_if<DeltaNet>(&step.op)) {
      add(delta->state, static_cast<size_t>(delta->value_heads) * static_cast<size_t>(delta->key_dim) *
                            static_cast<size_t>(delta->value_dim));
    }
  }
  for (const size_t floats : layout.floats) {
    layout.offsets.push_back(layout.total);
    layout.total += floats;
  }
  return layout;
}

size_t state_copies(const StateLayout& layout, int sequences) {
  if (layout.total == 0) return 0;
  return 3 * static_cast<size_t>(sequences) + std::clamp(kPrefixBytes / layout.bytes(), kMinPrefixes, kMaxPrefixes);
}

}  // namespace doppler
