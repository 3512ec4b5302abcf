#include "gpu/run/expert_steps.h"

#include <algorithm>

namespace doppler::gpu {

ExpertMatmulShape expert_shape(const GpuContext& context, const Step& step, int tokens) {
  const auto& op = std::get<ExpertMatMul>(step.op);
  const std::vector<int64_t>& weight = step.weights[0].shape;  // [experts, rows, cols]
  ExpertMatmulShape shape;
  shape.dtype = context.weights.matrix(step.weights[0].slot).dtype;
  shape.tokens = static_cast<uint64_t>(tokens);
  shape.rows = static_cast<uint64_t>(weight[1]);
  shape.cols = static_cast<uint64_t>(weight[2]);
  shape.experts = static_cast<uint32_t>(weight[0]);
  shape.k = static_cast<uint32_t>(op.k);
  shape.per_expert = op.per_expert;
  shape.exact = !context.weights.coarse();
  return shape;
}

ExpertMemory::ExpertMemory(GpuContext& context, int tokens) {
  uint64_t entries = 0, tiles = 0, values = 0, scales = 0;
  for (const Step& step : context.plan.steps) {
    if (!std::holds_alternative<ExpertMatMul>(step.op)) continue;
    const ExpertMatmulShape shape = expert_shape(context, step, tokens);
    entries = std::max(entries, expert_entries_bytes(shape.tokens, shape.k));
    tiles = std::max(tiles, expert_tiles_bytes(shape.tokens, shape.experts, shape.k));
    if (choose_expert_matmul(context.device.capabilities(), shape).kernel == MatmulKernel::kFloat) continue;
    values = std::max(values, quantized_values_bytes(shape.x_rows(), shape.cols));
    scales = std::max(scales, quantized_scales_bytes(shape.x_rows(), shape.cols));
  }
  if (entries == 0) return;
  map.entries = context.device.create_buffer("tokens by expert", entries);
  map.tiles = context.device.create_buffer("tiles of experts", tiles);
  if (values == 0) return;
  quantized.values = context.device.create_buffer("experts' int8 values", values);
  quantized.scales = context.device.create_buffer("experts' int8 scales", scales);
}

void record_expert_step(Recording& recording, const GpuContext& context, const ExpertMemory& memory, const Step& step,
                        int tokens, const Buffer& x, const Buffer& route, const Buffer& out, MappedRoute* mapped) {
  const ExpertMatmulShape shape = expert_shape(context, step, tokens);
  const Weight& weight = context.weights.matrix(step.weights[0].slot);
  const BoundBuffer bias =
      step.weights.size() > 1 ? BoundBuffer(context.weights.vector(step.weights[1].slot)) : BoundBuffer();
  const MatmulChoice choice = choose_expert_matmul(recording.device().capabilities(), shape);
  MatmulInput input{x, {}, shape.x_rows()};
  if (choice.kernel == MatmulKernel::kInt8) {
    record_quantize_activations(recording, step.name, x, shape.x_rows(), shape.cols, memory.quantized);
    input.quantized = memory.quantized;
  }
  const MappedRoute wanted{step.inputs[1], choice.tile_tokens};
  if (!mapped || *mapped != wanted)
    record_expert_map(recording, step.name, shape, choice.tile_tokens, route, memory.map);
  if (mapped) *mapped = wanted;
  record_expert_matmul(recording, step.name, choice, shape, weight, input, memory.map, bias, out);
}

}  // namespace doppler::gpu
