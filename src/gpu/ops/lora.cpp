#include "gpu/ops/lora.h"

#include "gpu/wgsl/lora.h"

namespace doppler::gpu {
namespace {

constexpr uint32_t kLoraThreads = 64;

}  // namespace

LoraWeights upload_lora(Device& device, const std::string& slot, const LoraPair& pair) {
  LoraWeights weights{static_cast<uint32_t>(pair.rank),
                      static_cast<uint32_t>(pair.in),
                      static_cast<uint32_t>(pair.out),
                      pair.scale,
                      device.create_buffer(slot + " lora_a", pair.a.size() * sizeof(float)),
                      device.create_buffer(slot + " lora_b", pair.b.size() * sizeof(float))};
  write<float>(device, weights.a, pair.a);
  write<float>(device, weights.b, pair.b);
  return weights;
}

Variant choose_lora_down(const Capabilities& capabilities) {
  return {{{"reduce", capabilities.subgroups ? "subgroup" : "plain"}}, {{"threads", kLoraThreads}}};
}

void record_lora(Recording& recording, const std::string& step, const LoraWeights& weights, float scale, uint64_t rows,
                 const BoundBuffer& x, const BoundBuffer& thin, const BoundBuffer& y) {
  const Capabilities& capabilities = recording.device().capabilities();
  const auto count = static_cast<uint32_t>(rows);
  recording.dispatch<wgsl::LoraDown>(
      step, choose_lora_down(capabilities), {.rows = count, .rank = weights.rank, .columns = weights.in},
      {.x = x, .a = weights.a, .thin = thin}, linear_grid(rows * weights.rank, capabilities.limits));
  recording.dispatch<wgsl::LoraUp>(
      step, Variant{{}, {{"threads", kLoraThreads}}},
      {.rows = count, .rank = weights.rank, .columns = weights.out, .scale = scale * weights.scale},
      {.thin = thin, .b = weights.b, .out = y},
      linear_grid(div_up(rows * weights.out, kLoraThreads), capabilities.limits));
}

}  // namespace doppler::gpu
