#include "gpu/run/step_program.h"

#include <algorithm>

#include "base/error.h"
#include "gpu/ops/attention.h"
#include "gpu/ops/elementwise.h"
#include "gpu/ops/experts.h"
#include "gpu/ops/matvec.h"
#include "gpu/ops/state.h"

namespace doppler::gpu {
namespace {

uint64_t f32_bytes(int width, int rows) { return static_cast<uint64_t>(width) * static_cast<uint64_t>(rows) * 4; }

}  // namespace

MatmulShape matmul_shape(const Weight& weight, int tokens) {
  MatmulShape shape;
  shape.dtype = weight.dtype;
  shape.tokens = static_cast<uint64_t>(tokens);
  shape.rows = static_cast<uint64_t>(weight.rows);
  shape.cols = static_cast<uint64_t>(weight.cols);
  shape.exact = !takes_int8(weight.dtype);
  shape.may_split = true;
  shape.like = kLikeTokens;
  return shape;
}

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
  shape.exact = !context.weights.uses_int8();
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

ActivationBuffers::ActivationBuffers(GpuContext& context, BufferPlan buffer_plan, int tokens)
    : plan(std::move(buffer_plan)), experts(context, tokens) {
  Device& device = context.device;
  // Steps that run for a few tokens keep their values in buffers of their own, so logits ask for nothing here.
  std::vector<int> widths(plan.widths.size(), 0);
  for (const Step& step : context.plan.steps) {
    const int b = plan.buffer_of[static_cast<size_t>(step.output)];
    if (b < 0 || step.logits_only) continue;
    int& width = widths[static_cast<size_t>(b)];
    width = std::max(width, context.width(step.output));
  }
  for (size_t b = 0; b < widths.size(); ++b) {
    buffers.push_back(device.create_buffer("values " + std::to_string(b), f32_bytes(widths[b], tokens)));
  }
  uint64_t widest = 0, scratch_bytes = 0;
  for (const Step& step : context.plan.steps) {
    if (!std::holds_alternative<MatMul>(step.op) || step.logits_only) continue;
    const Weight& weight = context.weights.matrix(step.weights[0].slot);
    widest = std::max(widest, static_cast<uint64_t>(weight.cols));
    scratch_bytes =
        std::max(scratch_bytes, max_matmul_scratch_bytes(device.capabilities(), matmul_shape(weight, tokens), weight));
  }
  if (device.capabilities().int8_dot) {
    const uint64_t n = static_cast<uint64_t>(tokens);
    quantized.values = device.create_buffer("int8 values", quantized_values_bytes(n, widest));
    quantized.scales = device.create_buffer("int8 scales", quantized_scales_bytes(n, widest));
  }
  if (device.capabilities().f16_matrices) {
    const uint64_t n = static_cast<uint64_t>(tokens);
    f16.values = device.create_buffer("f16 values", f16_values_bytes(n, widest));
    f16.scales = device.create_buffer("f16 scales", f16_scales_bytes(n));
  }
  if (scratch_bytes > 0) scratch = device.create_buffer("matmul scratch", scratch_bytes);
}

StepProgram::StepProgram(GpuContext& context, std::shared_ptr<ActivationBuffers> memory, const StepShape& shape,
                         const TapSteps* tapped)
    : c_(context), memory_(std::move(memory)), shape_(shape), tokens_(shape.tokens), logit_rows_(shape.logit_rows()) {
  if (c_.paged) {
    parts_.emplace_back(c_.device, nullptr);
  } else {
    parts_.emplace_back(c_.device);
  }
  for (const Step& step : c_.plan.steps) {
    if (step.logits_only && logit_rows_ == 0) break;
    if (step.logits_only && logit_rows_ < tokens_) take_last_row(step);
    std::visit([&](const auto& op) { record(op, step); }, step.op);
    if (step.output == quantized_value_) quantized_value_ = -1;
    if (step.output == f16_value_) f16_value_ = -1;
    if (tapped && taps(*tapped, step)) tap(step);
  }
}

// A rope step's output exists only after the attention step, which reads it: so it is copied then. Copies are
// dispatches, because a copy of buffers would end the pass.
void StepProgram::tap(const Step& step) {
  if (std::holds_alternative<Rope>(step.op)) {
    taps_[step.output] = {};
    return;
  }
  const auto copy = [&](int v) {
    const std::string& name = c_.plan.values[static_cast<size_t>(v)].name;
    const Buffer& to = taps_[v] = c_.device.create_buffer("tap of " + name, f32_bytes(c_.width(v), rows(step)));
    record_copy(recording(), "tap", value(v), to, to.size());
  };
  copy(step.output);
  if (!std::holds_alternative<Attention>(step.op)) return;
  if (taps_.count(step.inputs[0]) > 0) copy(step.inputs[0]);
}

// Turned keys go to the cache only, so those to be seen are turned once more, before their input's memory is reused.
void StepProgram::tap_keys(const Step& k) {
  const auto& op = std::get<Rope>(k.op);
  const auto head = static_cast<uint32_t>(op.head_dim), width = static_cast<uint32_t>(c_.width(k.output));
  taps_[k.output] = c_.device.create_buffer("tap of " + k.name, f32_bytes(c_.width(k.output), tokens_));
  record_rope(recording(), "tap", {static_cast<uint32_t>(tokens_), width / head, head, static_cast<uint32_t>(op.dims)},
              c_.state, c_.ropes[static_cast<size_t>(op.rope)], value(k.inputs[0]), taps_[k.output]);
}

// A value of all tokens lives in the shared memory, one of a few in a buffer of its own.
const Buffer& StepProgram::value(int v) const {
  const auto own = own_.find(v);
  return own != own_.end() ? own->second : shared_value(v);
}

const Buffer& StepProgram::shared_value(int v) const {
  return memory_->buffers[static_cast<size_t>(memory_->plan.buffer_of[static_cast<size_t>(v)])];
}

Buffer& StepProgram::own_value(const Step& step) {
  Buffer& buffer = own_[step.output];
  buffer = c_.device.create_buffer(step.name, f32_bytes(c_.width(step.output), rows(step)));
  return buffer;
}

Buffer StepProgram::tapped(const Step& step) const {
  const auto found = taps_.find(step.output);
  return found == taps_.end() ? Buffer() : found->second;
}

void StepProgram::take_last_row(const Step& step) {
  if (last_row_of_ >= 0) return;
  last_row_of_ = step.inputs[0];
  const uint64_t bytes = f32_bytes(c_.width(last_row_of_), 1);
  const Buffer all = value(last_row_of_);
  Buffer row = c_.device.create_buffer("last row", bytes);
  recording().copy("last row", all, bytes * static_cast<uint64_t>(tokens_ - 1), row, 0, bytes);
  own_[last_row_of_] = row;
}

void StepProgram::record(const Embed& op, const Step& step) {
  if (op.mapped) {
    own_[step.output] = c_.tables.at(step.output).rows;
    return;
  }
  record_embed(recording(), step.name, c_.weights.matrix(step.weights[0].slot), c_.tokens, value(step.output),
               static_cast<uint64_t>(tokens_), op.scale);
}

void StepProgram::record(const Norm& op, const Step& step) {
  const Buffer& x = value(step.inputs[0]);
  const Buffer& out = step.logits_only ? own_value(step) : value(step.output);
  const uint32_t group = static_cast<uint32_t>(op.group);
  const uint64_t groups = static_cast<uint64_t>(rows(step)) * static_cast<uint64_t>(c_.width(step.output)) / group;
  record_norm(recording(), step.name, x, c_.weights.norm_weight(step), out, {groups, group}, op.eps,
              step.weights.empty() ? 0 : op.offset);
}

void StepProgram::record(const MatMul&, const Step& step) {
  matmul(step, rows(step));
  adapt(step, rows(step));
}

void StepProgram::adapt(const Step& step, int tokens) {
  const auto loras = c_.loras.find(step.weights[0].slot);
  if (loras == c_.loras.end()) return;
  for (const AdapterUse& use : shape_.adapters) {
    const auto weights = loras->second.find(use.adapter);
    if (weights == loras->second.end()) continue;
    record_lora(recording(), step.name, weights->second, use.scale, static_cast<uint64_t>(tokens),
                value(step.inputs[0]), c_.lora_thin, value(step.output));
  }
}

void StepProgram::matmul(const Step& step, int tokens) {
  const Weight& weight = c_.weights.matrix(step.weights[0].slot);
  const BoundBuffer bias =
      step.weights.size() > 1 ? BoundBuffer(c_.weights.vector(step.weights[1].slot)) : BoundBuffer();
  const Buffer x = value(step.inputs[0]);
  const Buffer& out = step.logits_only ? own_value(step) : value(step.output);
  // One token by itself: a decoded one, or the last of a prompt whose logits are wanted.
  if (shape_.phase == Phase::kDecode || (step.logits_only && shape_.want == Logits::kLast)) {
    const MatvecShape shape{weight.dtype, static_cast<uint64_t>(weight.rows), static_cast<uint64_t>(weight.cols),
                            !takes_int8(weight.dtype)};
    const Variant variant = choose_matvec(c_.device.capabilities(), shape);
    return record_matvec(recording(), step.name, variant, weight, x, bias, out);
  }
  const MatmulChoice choice = choose_matmul(c_.device.capabilities(), matmul_shape(weight, tokens));
  MatmulInput input{x, memory_->quantized, static_cast<uint64_t>(tokens), memory_->f16};
  const uint64_t cols = static_cast<uint64_t>(weight.cols);
  if (choice.kernel == MatmulKernel::kInt8 && quantized_value_ != step.inputs[0]) {
    record_quantize_activations(recording(), step.name, x, input.tokens, cols, input.quantized);
    quantized_value_ = step.inputs[0];
  }
  if (choice.kernel == MatmulKernel::kMatrix && f16_value_ != step.inputs[0]) {
    record_activations_to_f16(recording(), step.name, x, input.tokens, cols, input.f16);
    f16_value_ = step.inputs[0];
  }
  record_matmul(recording(), step.name, choice, weight, input, bias, {out}, memory_->scratch);
}

// The attention step turns q and k itself, on the way into the cache.
void StepProgram::record(const Rope&, const Step& step) { rotated_[step.output] = &step; }

void StepProgram::record(const Attention& op, const Step& step) {
  const LayerCache& cache = c_.kv.layers()[static_cast<size_t>(op.layer)];
  const Step& q = *rotated_.at(step.inputs[0]);
  const Buffer& heads = c_.weights.head_weights(op.layer);
  const auto& turn = std::get<Rope>(q.op);
  const Buffer& turned = value(q.output);
  const uint32_t tokens = static_cast<uint32_t>(tokens_);
  if (op.shared) {
    record_rope(recording(), q.name,
                {tokens, cache.shape.heads, cache.shape.head_dim, static_cast<uint32_t>(turn.dims)}, c_.state,
                c_.ropes[static_cast<size_t>(turn.rope)], value(q.inputs[0]), turned);
    record_attention_prefill(recording(), step.name, cache.shape,
                             {c_.state, turned, cache.buffer, heads, value(step.output)}, tokens, {});
    return;
  }
  const Step& k = *rotated_.at(step.inputs[1]);
  if (taps_.count(k.output) > 0) tap_keys(k);
  record_rope_store(recording(), q.name, cache.shape, {},
                    separate_projections(value(q.inputs[0]), value(k.inputs[0]), value(step.inputs[2]), cache.shape),
                    {c_.state, heads, c_.ropes[static_cast<size_t>(turn.rope)], cache.buffer, turned,
                     static_cast<uint32_t>(turn.dims)},
                    tokens, {});
  record_attention_prefill(recording(), step.name, cache.shape,
                           {c_.state, turned, cache.buffer, heads, value(step.output)}, tokens, {});
}

void StepProgram::record(const Glu& op, const Step& step) {
  const uint64_t count = static_cast<uint64_t>(tokens_) * static_cast<uint64_t>(c_.width(step.output));
  const Buffer& gate = value(step.inputs[0]);
  record_glu(recording(), step.name, op, gate, op.interleaved ? gate : value(step.inputs[1]), value(step.output), count,
             op.one_gate ? static_cast<uint32_t>(c_.width(step.output)) : 1);
}

void StepProgram::record(const ShortConv& op, const Step& step) {
  record_short_conv(recording(), step.name, op, c_.kv.places(), value(step.inputs[0]),
                    c_.weights.vector(step.weights[0].slot), c_.kv.states(op.state), value(step.output),
                    static_cast<uint32_t>(tokens_));
}

void StepProgram::record(const DeltaNet& op, const Step& step) {
  record_delta_net(recording(), step.name, op,
                   {.places = c_.kv.places(),
                    .qkv = value(step.inputs[0]),
                    .b = value(step.inputs[1]),
                    .a = value(step.inputs[2]),
                    .decay = c_.weights.vector(step.weights[0].slot),
                    .dt = c_.weights.vector(step.weights[1].slot),
                    .states = c_.kv.states(op.state),
                    .out = value(step.output)},
                   static_cast<uint32_t>(tokens_));
}

void StepProgram::record(const Part& op, const Step& step) {
  record_part(recording(), step.name, op, value(step.inputs[0]), value(step.output),
              static_cast<uint64_t>(tokens_) * static_cast<uint64_t>(c_.width(step.output)));
}

void StepProgram::record(const Add& op, const Step& step) {
  record_add(recording(), step.name, value(step.inputs[0]), value(step.inputs[1]), value(step.output),
             static_cast<uint64_t>(tokens_) * static_cast<uint64_t>(c_.width(step.output)), op.scale);
}

void StepProgram::record(const SoftCap& op, const Step& step) {
  const Buffer x = value(step.inputs[0]);
  record_softcap(recording(), step.name, x, own_value(step),
                 static_cast<uint64_t>(rows(step)) * static_cast<uint64_t>(c_.width(step.output)), op.cap);
}

void StepProgram::record(const Scale& planned, const Step& step) {
  Scale op = planned;
  op.factor = c_.weights.factor(step);
  const Buffer x = value(step.inputs[0]);
  const Buffer& out = step.logits_only ? own_value(step) : value(step.output);
  const auto width = static_cast<uint32_t>(c_.width(step.output));
  record_scale(recording(), step.name, op, c_.state, x, out, static_cast<uint64_t>(rows(step)) * width, width);
}

void StepProgram::record(const Route& op, const Step& step) {
  record_route(recording(), step.name, value(step.inputs[0]), value(step.output), static_cast<uint64_t>(tokens_),
               static_cast<uint32_t>(c_.width(step.inputs[0])), op,
               step.weights.empty() ? BoundBuffer() : BoundBuffer(c_.weights.vector(step.weights[0].slot)));
}

void StepProgram::record(const ExpertMatMul&, const Step& step) {
  if (c_.paged) {
    const ExpertMatmulShape shape = expert_shape(c_, step, tokens_);
    StepPart& part = parts_.emplace_back(c_.device, &step);
    part.tile_tokens = choose_expert_matmul(c_.device.capabilities(), shape).tile_tokens;
    mapped_ = {step.inputs[1], part.tile_tokens};  // by whoever brings the experts
  }
  record_expert_step(recording(), c_, memory_->experts, step, tokens_, value(step.inputs[0]), value(step.inputs[1]),
                     value(step.output), &mapped_);
  if (c_.paged) parts_.emplace_back(c_.device, nullptr);
}

void StepProgram::record(const Combine& op, const Step& step) {
  record_combine(recording(), step.name, value(step.inputs[0]), value(step.inputs[1]), value(step.output),
                 static_cast<uint64_t>(tokens_), static_cast<uint32_t>(c_.width(step.output)),
                 static_cast<uint32_t>(op.k));
}

}  // namespace doppler::gpu
