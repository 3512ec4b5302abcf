#include "gpu/run/decode_program.h"

#include <algorithm>

#include "base/error.h"
#include "gpu/ops/elementwise.h"
#include "gpu/ops/experts.h"
#include "gpu/ops/matvec.h"
#include "gpu/ops/sample.h"

namespace doppler::gpu {
namespace {

MatvecShape matvec_shape(const Weight& weight) {
  return {weight.dtype, static_cast<uint64_t>(weight.rows), static_cast<uint64_t>(weight.cols),
          !takes_int8(weight.dtype)};
}

// Of a group of experts: its first product's and its second's weights have these.
ExpertsShape experts_shape(const GpuContext& context, const FusedGroup& up) {
  const Step& step = context.step(up.steps[1]);
  const std::vector<int64_t>& shape = step.weights[0].shape;  // [experts, 2 · ffn, hidden]
  return {context.weights.matrix(step.weights[0].slot).dtype, static_cast<uint32_t>(shape[0]),
          static_cast<uint32_t>(std::get<ExpertMatMul>(step.op).k), static_cast<uint64_t>(shape[2]),
          static_cast<uint64_t>(shape[1] / 2)};
}

uint32_t splits_of(const GpuContext& context, const LayerCache& cache) {
  const int window = static_cast<int>(cache.shape.window);
  const int longest = window > 0 ? std::min(window, context.context) : context.context;
  return choose_splits(context.device.capabilities(), cache.shape, static_cast<uint32_t>(longest));
}

bool is_qkv(const FusedGroup& group) { return group.matmuls.size() == 3; }

// Is the group's activation for the matrix that follows, and nobody else, so that it can be left as that takes it?
bool feeds_stored(const GpuContext& context, size_t index) {
  const FusedGroup& group = context.groups[index];
  if (group.glu < 0 || index + 1 == context.groups.size()) return false;
  if (context.groups[index + 1].fusion != Fusion::kSingle) return false;
  const Step& next = context.step(context.groups[index + 1].steps[0]);
  const int result = context.step(group.glu).output;
  if (!std::holds_alternative<MatMul>(next.op) || next.inputs[0] != result) return false;
  if (!can_project_stored(context.device.capabilities(), matvec_shape(context.weights.matrix(next.weights[0].slot))))
    return false;
  const std::vector<Step>& steps = context.plan.steps;
  return std::count_if(steps.begin(), steps.end(), [&](const Step& step) {
           return std::count(step.inputs.begin(), step.inputs.end(), result) > 0;
         }) == 1;
}

}  // namespace

bool DecodeProgram::possible(const GpuContext& context) {
  if (context.paged || !context.tables.empty()) return false;  // the host must know every token
  if (!context.config.makes_text()) return false;              // there is no next token
  const Capabilities& capabilities = context.device.capabilities();
  if (wish_for(capabilities.kernels, "decode") == "steps") return false;
  for (size_t g = 0; g < context.groups.size(); ++g) {
    const FusedGroup& group = context.groups[g];
    if (group.fusion == Fusion::kProjectNorm) {
      const std::vector<WeightRun>& runs = context.weights.group(g).runs;
      const bool separate = group.glu >= 0 && (runs.size() != 1 || runs[0].weight.second);  // gate and up must be one
      if (separate || (group.matmuls.size() > 1 && !is_qkv(group) && group.glu < 0)) return false;
      for (const WeightRun& run : runs) {
        if (!can_project(capabilities, matvec_shape(run.weight))) return false;
      }
    } else if (group.fusion == Fusion::kAttention) {
      const Step& attention = context.step(group.steps.back());
      if (static_cast<uint32_t>(std::get<Attention>(attention.op).head_dim) > kMaxDecodeHeadDim) return false;
      if (g == 0 || context.groups[g - 1].fusion != Fusion::kProjectNorm || !is_qkv(context.groups[g - 1]))
        return false;
    } else if (group.fusion == Fusion::kMerge) {
      if (!can_project(capabilities,
                       matvec_shape(context.weights.matrix(context.step(group.steps[0]).weights[0].slot))))
        return false;
    } else if (group.fusion == Fusion::kExpertsUp) {
      const ExpertsShape shape = experts_shape(context, group);
      const Step& down = context.step(group.steps.back() + 1);
      const bool alike = context.weights.matrix(down.weights[0].slot).dtype == shape.dtype;
      if (!alike || !can_fuse_experts(capabilities, shape)) return false;
    } else if (group.fusion == Fusion::kSingle) {
      const Step& step = context.step(group.steps[0]);
      if (!std::holds_alternative<Embed>(step.op) && !std::holds_alternative<MatMul>(step.op)) return false;
    }
  }
  return true;
}

bool DecodeProgram::possible_for_columns(const GpuContext& context) {
  if (!possible(context) || context.groups.back().fusion != Fusion::kProjectNorm) return false;
  if (max_columns(context) < 2) return false;
  for (size_t g = 0; g < context.groups.size(); ++g) {
    const Step& step = context.step(context.groups[g].steps[0]);
    if (context.groups[g].fusion != Fusion::kSingle || !std::holds_alternative<MatMul>(step.op)) continue;
    // What is too wide for these goes to matvec.h, which adds up in another order.
    const MatvecShape shape = matvec_shape(context.weights.matrix(step.weights[0].slot));
    if (!can_project(context.device.capabilities(), shape) && !(g > 0 && feeds_stored(context, g - 1))) return false;
  }
  return true;
}

uint64_t DecodeProgram::max_columns(const GpuContext& context) {
  uint64_t widest = static_cast<uint64_t>(context.config.q_width() + 2 * context.config.kv_width()) * 4;
  for (const Step& step : context.plan.steps) {
    if (step.logits_only) continue;
    widest = std::max(widest, static_cast<uint64_t>(context.width(step.output)) * 4);
  }
  for (const LayerCache& cache : context.kv.layers()) {
    widest = std::max(widest, partial_bytes(cache.shape, splits_of(context, cache)));
  }
  return std::max<uint64_t>(1, context.device.capabilities().limits.max_binding_bytes / widest);
}

DecodeProgram::DecodeProgram(GpuContext& context, const std::optional<Sampling>& sampling, const TapSteps* tapped)
    : DecodeProgram(context, sampling, tapped, {}) {}

DecodeProgram::DecodeProgram(GpuContext& context, const std::optional<Sampling>& sampling, const TapSteps* tapped,
                             const DecodeColumns& columns)
    : c_(context),
      columns_(columns),
      rows_(std::max(1u, columns.most)),
      sampling_(sampling),
      recording_(context.device, "decode"),
      groups_(context.groups),
      taps_(context, tapped),
      plan_(share_buffers(context.plan, steps_of(groups_))) {
  Device& device = c_.device;
  make_value_buffers();
  const ModelConfig& config = c_.config;
  qkv_ = device.create_buffer("qkv", rows_ * static_cast<uint64_t>(config.q_width() + 2 * config.kv_width()) * 4);
  spare_ = device.create_buffer("spare residual", static_cast<uint64_t>(config.hidden) * 4);
  uint64_t partial = 0;
  for (const LayerCache& cache : c_.kv.layers()) {
    splits_.push_back(splits_of(c_, cache));
    const uint64_t own = rows_ * partial_bytes(cache.shape, splits_.back());
    partial = std::max(partial, own);
    const int layer = static_cast<int>(splits_.size()) - 1;
    if (taps_.attention(layer)) own_partials_[layer] = device.create_buffer("attention splits", own);
  }
  partials_ = device.create_buffer("attention splits", partial);
  uint64_t between = 0;
  for (const FusedGroup& group : groups_) {
    if (group.fusion != Fusion::kExpertsUp) continue;
    between = std::max(between, experts_between_bytes(device.capabilities(), experts_shape(c_, group)));
  }
  if (between > 0) between_ = device.create_buffer("experts' gate and up", rows_ * between);
  if (of_columns()) make_column_buffers();
  if (sampling_) make_choice_buffers();
  for (size_t g = 0; g < groups_.size(); ++g) record_group(g);
  record_recomputed();
  taps_.record(recording_);
  if (sampling_) choose(of_columns() ? pairs_ : logits());
}

// Those of columns leave out the logits, which are large and have a buffer of their own, if any.
void DecodeProgram::make_value_buffers() {
  std::vector<int> widths = plan_.widths;
  if (of_columns()) {
    std::fill(widths.begin(), widths.end(), 0);
    for (size_t v = 0; v < c_.plan.values.size(); ++v) {
      const int b = plan_.buffer_of[v];
      if (b < 0 || static_cast<int>(v) == c_.plan.steps.back().output) continue;
      int& width = widths[static_cast<size_t>(b)];
      width = std::max(width, c_.plan.values[v].width);
    }
    if (!sampling_) {
      logits_ =
          c_.device.create_buffer("logits of columns", columns_.logits * static_cast<uint64_t>(c_.config.vocab) * 4);
    }
  }
  for (const int width : widths) {
    buffers_.push_back(
        c_.device.create_buffer("token values", rows_ * uint64_t{4} * static_cast<uint64_t>(std::max(1, width))));
  }
}

void DecodeProgram::make_column_buffers() {
  uint64_t most = 16;
  const auto see = [&](const Weight& weight) {
    most = std::max(most, batch_x_bytes(c_.device.capabilities(), weight));
  };
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Step& step = c_.step(groups_[g].steps[0]);
    if (groups_[g].fusion == Fusion::kProjectNorm) {
      for (const WeightRun& run : c_.weights.group(g).runs) see(run.weight);
    } else if (std::holds_alternative<MatMul>(step.op)) {
      see(c_.weights.matrix(step.weights[0].slot));
    }
  }
  column_values_ = c_.device.create_buffer("x of columns", rows_ * most);
  column_factors_ = c_.device.create_buffer("norms of columns", rows_ * 4);
}

void DecodeProgram::project_columns(const std::string& step, const Weight& weight, const BoundBuffer& values,
                                    const Epilogue& epilogue, const Buffer& y) {
  const BatchX x = record_batch_values(recording_, step, weight, values, batch_columns(), {column_values_, {}});
  record_project_batch(recording_, step, weight, x, epilogue, batch_columns(), static_cast<uint32_t>(weight.rows), y);
}

void DecodeProgram::make_choice_buffers() {
  Device& device = c_.device;
  const uint32_t vocab = static_cast<uint32_t>(c_.config.vocab);
  if (of_columns()) {
    for (const WeightRun& run : c_.weights.group(groups_.size() - 1).runs) {
      for (const Weight& weight : rows_by_type(run.weight)) {
        pair_count_ += batch_pairs(device.capabilities(), weight, batch_columns(true));
      }
    }
    pairs_ = device.create_buffer("argmax pairs", columns_.logits * pair_count_ * 8ull);
    out_tokens_ = device.create_buffer("chosen tokens", columns_.logits * 4ull);
    return;
  }
  out_tokens_ = device.create_buffer("chosen tokens", kKeptTokens * 4);
  seen_ = device.create_buffer("seen tokens", div_up(vocab, 32) * 4);
  pair_count_ = argmax_pairs(vocab);
  if (only_best()) {
    pair_count_ = 0;
    for (const WeightRun& run : c_.weights.group(groups_.size() - 1).runs) {
      pair_count_ += best_pairs(device.capabilities(), run.weight);
    }
  }
  pairs_ = device.create_buffer("argmax pairs", pair_count_ * 8ull);
  if (sampling_->temperature > 0) {
    bins_ = device.create_buffer("sample bins", sample_bin_bytes());
    list_ = device.create_buffer("sample list", sample_list_bytes(vocab));
  }
}

void DecodeProgram::set_text(std::span<const int32_t> before, int32_t token) {
  if (!sampling_ || sampling_->repeat_penalty == 1) return;
  std::vector<uint32_t> bits(div_up(static_cast<uint32_t>(c_.config.vocab), 32));
  const auto mark = [&](int32_t id) { bits[static_cast<uint32_t>(id) / 32] |= 1u << (static_cast<uint32_t>(id) % 32); };
  for (const int32_t id : before) mark(id);
  mark(token);
  gpu::write<uint32_t>(c_.device, seen_, bits);
}

const Buffer& DecodeProgram::value(int v) const {
  if (const Buffer* kept = taps_.value(v)) return *kept;
  if (logits_ && v == c_.plan.steps.back().output) return logits_;
  return buffers_[static_cast<size_t>(plan_.buffer_of[static_cast<size_t>(v)])];
}

const Buffer& DecodeProgram::qkv(int layer) const {
  const Buffer* kept = taps_.qkv(layer);
  return kept ? *kept : qkv_;
}

const Buffer& DecodeProgram::partials(int layer) const {
  const auto own = own_partials_.find(layer);
  return own == own_partials_.end() ? partials_ : own->second;
}

bool DecodeProgram::leaves_int8(size_t index) const {
  return feeds_stored(c_, index) && !taps_.value(c_.step(groups_[index].glu).output);
}

const std::string& DecodeProgram::name(const FusedGroup& group) const { return c_.step(group.steps.back()).name; }

void DecodeProgram::record_group(size_t index) {
  const FusedGroup& group = groups_[index];
  switch (group.fusion) {
    case Fusion::kProjectNorm: return project_norm(index);
    case Fusion::kAttention: return attention(group);
    case Fusion::kMerge: return merge(group);
    case Fusion::kExpertsUp: return experts_up(group);
    case Fusion::kExpertsDown: return experts_down(groups_[index - 1]);
    case Fusion::kSingle: return single(c_.step(group.steps[0]), index > 0 && leaves_int8(index - 1));
  }
}

void DecodeProgram::project_norm(size_t index) {
  const FusedGroup& group = groups_[index];
  const GroupWeights& weights = c_.weights.group(index);
  const Step& norm = c_.step(group.norm);
  ResidualNorm input;
  input.norms = weights.norms;
  input.eps = std::get<Norm>(norm.op).eps;
  input.offset = std::get<Norm>(norm.op).offset;
  input.keep = false;
  input.r = spare_;
  if (group.add >= 0) {
    const Step& add = c_.step(group.add);
    input.x = value(add.inputs[0]);
    input.branch_norm = group.branch_norm >= 0;
    input.branch_scale = std::get<Add>(add.op).scale;
    input.branch = value(input.branch_norm ? c_.step(group.branch_norm).inputs[0] : add.inputs[1]);
    // The last layer's is not needed again.
    input.keep = taps_.value(add.output) || plan_.buffer_of[static_cast<size_t>(add.output)] >= 0;
    if (input.keep) input.r = value(add.output);
  } else {
    input.x = value(norm.inputs[0]);
  }
  Epilogue epilogue;
  epilogue.bias = weights.bias ? BoundBuffer(weights.bias) : BoundBuffer();
  if (group.glu >= 0) epilogue.activation = std::get<Glu>(c_.step(group.glu).op).activation;
  if (group.scale >= 0) epilogue.scale = std::get<Scale>(c_.step(group.scale).op).factor;
  if (group.softcap >= 0) epilogue.softcap = std::get<SoftCap>(c_.step(group.softcap).op).cap;
  epilogue.int8 = !of_columns() && leaves_int8(index);
  epilogue.best = index + 1 == groups_.size() && only_best();
  const Buffer& y = epilogue.best   ? pairs_
                    : is_qkv(group) ? qkv(norm.layer)
                                    : value(c_.step(group.steps.back()).output);
  for (const WeightRun& run : weights.runs) {
    epilogue.first_row = run.first_row;
    if (of_columns()) {
      const uint32_t width = epilogue.best ? pair_count_ : group.glu >= 0 ? weights.rows / 2 : weights.rows;
      const BatchX x{column_values_, column_factors_};
      const BatchColumns columns = batch_columns(index + 1 == groups_.size());
      record_batch_norm(recording_, name(group), run.weight, input, epilogue, columns, x);
      for (const Weight& weight : rows_by_type(run.weight)) {
        record_project_batch(recording_, name(group), weight, x, epilogue, columns, width, y);
        epilogue.first_row += static_cast<uint32_t>(weight.rows);
        if (epilogue.best) epilogue.first_pair += batch_pairs(c_.device.capabilities(), weight, columns);
      }
      input.keep = false;
      continue;
    }
    record_project_norm(recording_, name(group), run.weight, input, epilogue, y);
    if (epilogue.best) epilogue.first_pair += best_pairs(c_.device.capabilities(), run.weight);
    input.keep = false;  // one dispatch stores the residual; the others must not be bound to it, or they would wait
    input.r = spare_;
  }
}

void DecodeProgram::attention(const FusedGroup& group) {
  const Step& step = c_.step(group.steps.back());
  const auto& op = std::get<Attention>(step.op);
  const size_t layer = static_cast<size_t>(op.layer);
  const LayerCache& cache = c_.kv.layers()[layer];
  HeadNorm norm;
  if (const auto* q_norm = std::get_if<Norm>(&c_.step(group.steps[0]).op)) norm = {true, q_norm->eps, q_norm->offset};
  const auto& rope = std::get<Rope>(c_.step(group.steps[group.steps.size() - 3]).op);
  record_attention_fused(recording_, step.name, cache.shape, norm, packed_projections(qkv(op.layer), cache.shape),
                         c_.ropes[static_cast<size_t>(rope.rope)],
                         {of_columns() ? c_.kv.column_state() : c_.state, c_.weights.head_weights(op.layer),
                          cache.buffer, partials(op.layer)},
                         splits_[layer],
                         of_columns() ? c_.kv.attention_columns(columns_.most, columns_.together) : AttentionColumns());
}

void DecodeProgram::merge(const FusedGroup& group) {
  const Step& step = c_.step(group.steps[0]);
  const size_t layer = static_cast<size_t>(step.layer);
  Epilogue epilogue;
  if (step.weights.size() > 1) epilogue.bias = c_.weights.vector(step.weights[1].slot);
  const Weight& weight = c_.weights.matrix(step.weights[0].slot);
  const SplitAttention input{c_.kv.layers()[layer].shape, c_.state, partials(step.layer), splits_[layer]};
  if (of_columns()) {
    const BatchX x{column_values_, {}};
    record_batch_merge(recording_, step.name, weight, input, batch_columns(), x);
    return record_project_batch(recording_, step.name, weight, x, epilogue, batch_columns(),
                                static_cast<uint32_t>(weight.rows), value(step.output));
  }
  record_project_merge(recording_, step.name, weight, input, epilogue, value(step.output));
}

void DecodeProgram::experts_up(const FusedGroup& group) {
  const Step &route = c_.step(group.steps[0]), &up = c_.step(group.steps[1]), &norm = c_.step(group.norm);
  const BoundBuffer bias = up.weights.size() > 1 ? BoundBuffer(c_.weights.vector(up.weights[1].slot)) : BoundBuffer();
  const Buffer& norms = c_.weights.group(static_cast<size_t>(&group - groups_.data()) - 1).norms;  // the router's
  const auto& op = std::get<Norm>(norm.op);
  record_experts_up(
      recording_, name(group), experts_shape(c_, group), c_.weights.matrix(up.weights[0].slot),
      {value(norm.inputs[0]), norms, value(route.inputs[0]), op.eps, op.offset, std::get<Route>(route.op).over_all},
      bias, std::get<Glu>(c_.step(group.steps[2]).op), between_, value(route.output), rows_);
}

void DecodeProgram::experts_down(const FusedGroup& before) {
  const Step &down = c_.step(before.steps.back() + 1), &sum = c_.step(before.steps.back() + 2);
  const BoundBuffer bias =
      down.weights.size() > 1 ? BoundBuffer(c_.weights.vector(down.weights[1].slot)) : BoundBuffer();
  record_experts_down(recording_, sum.name, experts_shape(c_, before), c_.weights.matrix(down.weights[0].slot),
                      between_, value(down.inputs[1]), bias, value(sum.output), rows_);
}

void DecodeProgram::single(const Step& step, bool stored) {
  const auto& out = [&]() -> const Buffer& { return value(step.output); };
  const auto width = static_cast<uint64_t>(c_.width(step.output));
  if (const auto* embed = std::get_if<Embed>(&step.op)) {
    const uint32_t token = of_columns() ? c_.kv.first_column_token() : offsetof(DecodeState, token) / 4;
    record_embed(recording_, step.name, c_.weights.matrix(step.weights[0].slot),
                 of_columns() ? c_.kv.column_state() : c_.state, out(), rows_, embed->scale, token);
  } else if (const auto* norm = std::get_if<Norm>(&step.op)) {
    const auto group = static_cast<uint32_t>(norm->group);
    record_norm(recording_, step.name, value(step.inputs[0]), c_.weights.vector(step.weights[0].slot), out(),
                {width / group, group}, norm->eps, norm->offset);
  } else if (const auto* glu = std::get_if<Glu>(&step.op)) {
    record_glu(recording_, step.name, *glu, value(step.inputs[0]), value(step.inputs.back()), out(), width);
  } else if (std::holds_alternative<ExpertMatMul>(step.op)) {
    if (!expert_memory_) expert_memory_ = std::make_unique<ExpertMemory>(c_, 1);
    record_expert_step(recording_, c_, *expert_memory_, step, 1, value(step.inputs[0]), value(step.inputs[1]), out());
  } else if (std::holds_alternative<MatMul>(step.op)) {
    const Weight& weight = c_.weights.matrix(step.weights[0].slot);
    Epilogue epilogue;
    if (step.weights.size() > 1) epilogue.bias = c_.weights.vector(step.weights[1].slot);
    if (of_columns()) {
      project_columns(step.name, weight, value(step.inputs[0]), epilogue, out());
    } else if (stored) {
      record_project_stored(recording_, step.name, weight, value(step.inputs[0]), epilogue, out());
    } else if (can_project(c_.device.capabilities(), matvec_shape(weight))) {
      record_project(recording_, step.name, weight, value(step.inputs[0]), epilogue, out());
    } else {
      const Variant variant = choose_matvec(c_.device.capabilities(), matvec_shape(weight));
      record_matvec(recording_, step.name, variant, weight, value(step.inputs[0]), epilogue.bias, out());
    }
  }
}

// What taps ask for and no dispatch stores: the attention, put together; projections before their activation; and what
// experts make.
void DecodeProgram::record_recomputed() {
  for (const int s : taps_.recomputed_steps()) single(c_.step(s), false);
  for (size_t layer = 0; layer < c_.kv.layers().size(); ++layer) {
    const auto number = static_cast<int>(layer);
    if (const Buffer* out = taps_.attention(number)) {
      record_attention_merge(recording_, "tap", c_.kv.layers()[layer].shape, c_.state, partials(number), *out,
                             splits_[layer]);
    }
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Buffer* out = taps_.recomputed(static_cast<int>(g));
    if (!out) continue;
    const GroupWeights& weights = c_.weights.group(g);
    const Step& norm = c_.step(groups_[g].norm);
    ResidualNorm input{.x = value(norm.inputs[0]), .branch = {}, .norms = weights.norms, .r = spare_, .keep = false};
    input.eps = std::get<Norm>(norm.op).eps;
    input.offset = std::get<Norm>(norm.op).offset;
    Epilogue epilogue;
    epilogue.bias = weights.bias ? BoundBuffer(weights.bias) : BoundBuffer();
    for (const WeightRun& run : weights.runs) {
      epilogue.first_row = run.first_row;
      record_project_norm(recording_, "tap", run.weight, input, epilogue, *out);
    }
  }
}

bool DecodeProgram::only_best() const {
  if (of_columns()) return columns_.best;
  return sampling_ && sampling_->temperature == 0 && sampling_->repeat_penalty == 1 &&
         groups_.back().fusion == Fusion::kProjectNorm && !taps_.value(c_.plan.steps.back().output);
}

void DecodeProgram::choose(const BoundBuffer& logits) {
  const uint32_t vocab = static_cast<uint32_t>(c_.config.vocab);
  if (of_columns()) {
    return record_batch_pick(recording_, "choose", c_.kv.column_state(), pairs_, pair_count_, out_tokens_,
                             columns_.logits);
  }
  const TokenBuffers tokens{c_.state, out_tokens_, seen_};
  if (!only_best()) {
    record_argmax_parts(recording_, "choose", logits, seen_, pairs_, vocab, sampling_->repeat_penalty);
  }
  if (sampling_->temperature == 0) {
    record_argmax_pick(recording_, "choose", pairs_, pair_count_, tokens, 1);
    return;
  }
  const SampleOptions options{.temperature = sampling_->temperature,
                              .top_k = static_cast<uint32_t>(sampling_->top_k),
                              .top_p = sampling_->top_p,
                              .min_p = sampling_->min_p,
                              .penalty = sampling_->repeat_penalty,
                              .seed = sampling_->seed};
  record_sample(recording_, "choose", options, {logits, pairs_, bins_, list_, tokens}, pair_count_, vocab, 1);
}

}  // namespace doppler::gpu
