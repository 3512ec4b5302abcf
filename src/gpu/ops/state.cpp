#include "gpu/ops/state.h"

#include "gpu/wgsl/state.h"

namespace doppler::gpu {
namespace {

constexpr uint32_t kConvThreads = 64;
constexpr uint32_t kSide = 32;  // rows and columns of a delta net's state, as in ops/state.wgsl

}  // namespace

Variant choose_short_conv(const Capabilities&, const ShortConv& op) {
  return {{}, {{"threads", kConvThreads}, {"gated", op.gated ? 1 : 0}, {"silu", op.silu ? 1 : 0}}};
}

void record_short_conv(Recording& recording, const std::string& step, const ShortConv& op, const BoundBuffer& places,
                       const BoundBuffer& x, const BoundBuffer& weight, const BoundBuffer& states,
                       const BoundBuffer& out, uint32_t tokens) {
  const Capabilities& capabilities = recording.device().capabilities();
  recording.dispatch<wgsl::ShortConv>(
      step, choose_short_conv(capabilities, op),
      {.tokens = tokens, .channels = static_cast<uint32_t>(op.channels), .kernel = static_cast<uint32_t>(op.kernel)},
      {.places = places, .x = x, .weight = weight, .states = states, .out = out},
      linear_grid(div_up(static_cast<uint64_t>(op.channels), kConvThreads), capabilities.limits));
}

Variant choose_delta_net(const Capabilities&, const DeltaNet& op) {
  const uint32_t parts = div_up(static_cast<uint64_t>(op.key_dim), kSide);
  return {{}, {{"parts", parts}, {"threads", parts * kSide}}};
}

void record_delta_net(Recording& recording, const std::string& step, const DeltaNet& op, const DeltaNetBuffers& buffers,
                      uint32_t tokens) {
  const Capabilities& capabilities = recording.device().capabilities();
  const auto heads = static_cast<uint32_t>(op.value_heads);
  recording.dispatch<wgsl::DeltaNet>(
      step, choose_delta_net(capabilities, op),
      {.tokens = tokens,
       .key_heads = static_cast<uint32_t>(op.key_heads),
       .value_heads = heads,
       .key_dim = static_cast<uint32_t>(op.key_dim),
       .value_dim = static_cast<uint32_t>(op.value_dim),
       .eps = op.eps},
      {.places = buffers.places,
       .qkv = buffers.qkv,
       .b = buffers.b,
       .a = buffers.a,
       .decay = buffers.decay,
       .dt = buffers.dt,
       .states = buffers.states,
       .out = buffers.out},
      linear_grid(uint64_t{heads} * div_up(static_cast<uint64_t>(op.value_dim), kSide), capabilities.limits));
}

}  // namespace doppler::gpu
