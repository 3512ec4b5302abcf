#include "cpu/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "format/decode.h"

namespace doppler::cpu {
namespace {

std::vector<float> decode_small(const Tensor& tensor) {
  const size_t cols = static_cast<size_t>(tensor.cols()), rows = static_cast<size_t>(tensor.rows());
  if (tensor.bytes.size() < rows * tensor.stride()) {
    fail({.code = ErrorCode::kFormat,
          .what = "a tensor has fewer bytes than its shape needs",
          .where = tensor.name,
          .expected = std::to_string(rows * tensor.stride()),
          .got = std::to_string(tensor.bytes.size())});
  }
  std::vector<float> out(rows * cols);
  for (size_t r = 0; r < rows; ++r) {
    decode_row(tensor.dtype, tensor.row(static_cast<int64_t>(r)), out.data() + r * cols, cols);
  }
  return out;
}

// Steps to operations, one node each.
class Lowering {
 public:
  Lowering(const ModelConfig& config, const Plan& plan, const Weights& weights, const CompileOptions& options)
      : config_(config),
        plan_(plan),
        weights_(weights),
        kernels_(*options.kernels),
        packed_(*options.packed),
        fuse_(options.fuse),
        context_(options.context),
        adapters_(options.adapters),
        unfused_steps_(options.unfused_steps) {}

  Program run() {
    for (const Value& value : plan_.values) {
      Buffer buffer;
      buffer.name = value.name;
      buffer.row_bytes = static_cast<size_t>(value.width) * sizeof(float);
      program_.buffers.push_back(std::move(buffer));
    }
    for (std::vector<int>& buffers : quantised_) buffers.assign(plan_.values.size(), -1);
    rows_of_values();
    segments_of_values();
    prepare_angles();
    for (step_ = 0; step_ < static_cast<int>(plan_.steps.size()); ++step_) lower(plan_.steps[index()]);
    program_.input = plan_.input;
    program_.output = plan_.steps.back().output;
    program_.buffers[static_cast<size_t>(program_.output)].outside = true;
    return std::move(program_);
  }

 private:
  size_t index() const { return static_cast<size_t>(step_); }
  bool is_unfused(size_t step) const { return !unfused_steps_.empty() && unfused_steps_[step]; }
  const Tensor& weight(const Step& step, size_t i) const { return weights_.at(step.weights[i].slot); }

  // A value is needed for every position if a key or a value of a cache comes of it; otherwise only where logits are
  // asked for. Someone who taps the steps wants to see all of them.
  void rows_of_values() {
    std::vector<bool> all(plan_.values.size(), false);
    for (auto step = plan_.steps.rbegin(); step != plan_.steps.rend(); ++step) {
      const size_t out = static_cast<size_t>(step->output);
      const size_t number = static_cast<size_t>(&*step - plan_.steps.data());
      if (!fuse_ || is_unfused(number)) all[out] = !step->logits_only;
      const auto* attention = std::get_if<Attention>(&step->op);
      const bool caches = attention && !attention->shared;
      if (std::holds_alternative<ShortConv>(step->op) || std::holds_alternative<DeltaNet>(step->op)) all[out] = true;
      for (size_t i = 0; i < step->inputs.size(); ++i) {
        if (all[out] || (caches && i > 0)) all[static_cast<size_t>(step->inputs[i])] = true;
      }
    }
    if (plan_.input >= 0) all[static_cast<size_t>(plan_.input)] = true;
    for (size_t v = 0; v < all.size(); ++v) program_.buffers[v].logit_rows = !all[v];
  }

  // The activations of chosen experts lie side by side in one row but are quantised separately.
  void segments_of_values() {
    segments_.assign(plan_.values.size(), 1);
    for (const Step& step : plan_.steps) {
      const auto* op = std::get_if<ExpertMatMul>(&step.op);
      if (op && op->per_expert) segments_[static_cast<size_t>(step.inputs[0])] = op->k;
    }
  }

  void prepare_angles() {
    Buffer buffer;
    buffer.name = "angles";
    angles_buffer_ = add_buffer(std::move(buffer));
    size_t floats = 0;
    for (size_t s = 0; s < plan_.steps.size(); ++s) {
      const auto* op = std::get_if<Rope>(&plan_.steps[s].op);
      if (!op) continue;
      const auto same = std::find_if(program_.angles.begin(), program_.angles.end(), [&](const AngleTable& t) {
        return t.rope == op->rope && t.head_dim == op->head_dim;
      });
      size_t offset = floats;
      if (same == program_.angles.end()) {
        const RopeConfig& rope = config_.ropes[static_cast<size_t>(op->rope)];
        program_.angles.push_back({op->rope, op->head_dim, make_rope_table(rope, op->head_dim, context_), offset});
        floats += static_cast<size_t>(op->dims);
      } else {
        offset = same->offset;
      }
      program_.angle_of_step.emplace_back(static_cast<int>(s), offset);
    }
    program_.buffers[static_cast<size_t>(angles_buffer_)].row_bytes = round_up(floats * sizeof(float), kLine);
    if (floats == 0) return;
    Op op;
    op.kind = OpKind::kAngles;
    op.out = angles_buffer_;
    rows_node(std::move(op));
  }

  int add_buffer(Buffer buffer) {
    program_.buffers.push_back(std::move(buffer));
    return static_cast<int>(program_.buffers.size()) - 1;
  }

  Node& add_node(NodeKind kind, Op op) {
    Node node;
    node.kind = kind;
    node.logit_rows = op.logit_rows;
    node.ops.push_back(std::move(op));
    program_.nodes.push_back(std::move(node));
    return program_.nodes.back();
  }
  Node& rows_node(Op op) { return add_node(NodeKind::kRows, std::move(op)); }

  bool logit_rows(int buffer) const { return program_.buffers[static_cast<size_t>(buffer)].logit_rows; }

  Op make_op(OpKind kind, const Step& step) const {
    Op op;
    op.kind = kind;
    op.step = step_;
    op.in = step.inputs;
    op.out = step.output;
    op.logit_rows = logit_rows(step.output);
    return op;
  }

  // The buffer of `value` as the matrix wants to read it, quantised the first time it is asked for.
  int input_for(const Linear& matrix, int value) {
    const Input input = matrix.input();
    if (input == Input::kF32) return value;
    int& buffer = quantised_[static_cast<size_t>(input)][static_cast<size_t>(value)];
    if (buffer >= 0) return buffer;
    const Buffer& from = program_.buffers[static_cast<size_t>(value)];
    const int segments = segments_[static_cast<size_t>(value)];
    const int width = static_cast<int>(from.row_bytes / sizeof(float)) / segments;
    Buffer to;
    to.name = from.name + (input == Input::kInt15 ? ".int15" : ".int8");
    to.row_bytes = static_cast<size_t>(segments) * input_row_bytes(input, width);
    to.logit_rows = from.logit_rows;
    Op op;
    op.kind = OpKind::kQuantize;
    op.in = {value};
    op.out = buffer = add_buffer(std::move(to));
    op.logit_rows = logit_rows(value);
    op.segments = segments;
    op.columns = width;
    op.input = input;
    rows_node(std::move(op));
    return buffer;
  }

  void lower(const Step& step) {
    const size_t before = program_.nodes.size();
    std::visit([&](const auto& op) { lower(step, op); }, step.op);
    program_.nodes.back().finished_step = step_;
    for (size_t n = before; n < program_.nodes.size(); ++n) program_.nodes[n].unfused = is_unfused(index());
  }

  void lower(const Step& step, const Embed&) {
    Op op = make_op(OpKind::kEmbed, step);
    // Where it is the output matrix too, its packed copy: the mapped one need not come into memory.
    op.matrix = packed_.linear(kernels_, weight(step, 0));
    rows_node(std::move(op));
  }
  void lower(const Step& step, const Norm& norm) {
    Op op = make_op(OpKind::kNorm, step);
    if (step.weights.empty()) {
      op.numbers.assign(static_cast<size_t>(norm.group), 1.0f);
    } else {
      op.numbers = decode_small(weight(step, 0));
      for (float& w : op.numbers) w += norm.offset;
    }
    rows_node(std::move(op));
  }
  void lower(const Step& step, const Rope&) {
    Op op = make_op(OpKind::kRope, step);
    op.in.push_back(angles_buffer_);
    rows_node(std::move(op));
  }
  void lower(const Step& step, const Add&) { rows_node(make_op(OpKind::kAdd, step)); }
  void lower(const Step& step, const Glu& glu) {
    Op op = make_op(OpKind::kGlu, step);
    op.glu = {static_cast<int>(glu.activation), glu.limit, glu.alpha};
    op.interleaved = glu.interleaved;
    rows_node(std::move(op));
  }
  void lower(const Step& step, const SoftCap& softcap) {
    Op op = make_op(OpKind::kSoftCap, step);
    op.cap = softcap.cap;
    rows_node(std::move(op));
  }
  void lower(const Step& step, const Part&) { rows_node(make_op(OpKind::kPart, step)); }
  void lower(const Step& step, const ShortConv& conv) {
    Op op = make_op(OpKind::kShortConv, step);
    const std::vector<float> taps = decode_small(weight(step, 0));
    const size_t channels = static_cast<size_t>(conv.channels), kernel = static_cast<size_t>(conv.kernel);
    for (size_t i = 0; i < kernel; ++i) {
      for (size_t c = 0; c < channels; ++c) op.numbers.push_back(taps[c * kernel + i]);
    }
    add_node(NodeKind::kState, std::move(op));
  }
  void lower(const Step& step, const DeltaNet&) {
    Op op = make_op(OpKind::kDeltaNet, step);
    op.numbers = decode_small(weight(step, 0));
    for (float& decay : op.numbers) decay = -std::exp(decay);
    const std::vector<float> dt = decode_small(weight(step, 1));
    op.numbers.insert(op.numbers.end(), dt.begin(), dt.end());
    add_node(NodeKind::kState, std::move(op));
  }
  void lower(const Step& step, const Scale&) {
    Op op = make_op(OpKind::kScale, step);
    op.factor = factor_of(step, weights_);
    rows_node(std::move(op));
  }
  void lower(const Step& step, const Route& route) {
    const int experts = plan_.values[static_cast<size_t>(step.inputs[0])].width;
    if (route.k < 1 || route.k > experts) {
      fail({.code = ErrorCode::kFormat,
            .what = "more experts are chosen than there are",
            .where = step.name,
            .expected = fmt::format("1 to {}", experts),
            .got = std::to_string(route.k)});
    }
    Op op = make_op(OpKind::kRoute, step);
    if (!step.weights.empty()) op.numbers = decode_small(weight(step, 0));
    rows_node(std::move(op));
  }
  void lower(const Step& step, const Combine&) { rows_node(make_op(OpKind::kCombine, step)); }

  void lower(const Step& step, const MatMul& matmul) {
    MatMulPart part;
    part.a = packed_.linear(kernels_, weight(step, 0));
    part.in = input_for(part.a, step.inputs[0]);
    part.out = step.output;
    Op op = make_op(OpKind::kMatMul, step);
    op.in = {part.in};
    if (matmul.bias) {
      op.numbers = decode_small(weight(step, 1));
      part.a.bias = op.numbers.data();  // moving the vector keeps its elements where they are
    }
    add_node(NodeKind::kMatMul, std::move(op)).parts.push_back(part);
    add_adapters(step);
  }

  // Behind a product, what adapters add to it. It lies between the product and whatever would be fused with it.
  void add_adapters(const Step& step) {
    std::vector<PlacedPair> pairs;
    size_t floats = 0;
    for (const NumberedPair& numbered : pairs_of(adapters_, step.weights[0].slot)) {
      pairs.resize(static_cast<size_t>(numbered.adapter) + 1);
      pairs.back() = {numbered.pair, floats};
      floats += static_cast<size_t>(numbered.pair->rank);
    }
    if (pairs.empty()) return;
    Buffer thin;
    thin.name = step.name + ".lora";
    thin.row_bytes = round_up(floats * sizeof(float), kLine);
    thin.logit_rows = logit_rows(step.output);
    Op down = make_op(OpKind::kLoraDown, step);
    down.in = {step.inputs[0]};
    down.out = add_buffer(std::move(thin));
    down.pairs = pairs;
    Op up = make_op(OpKind::kLoraUp, step);
    up.in = {down.out, step.output};
    up.pairs = std::move(pairs);
    add_node(NodeKind::kLora, std::move(down));
    add_node(NodeKind::kLora, std::move(up));
  }

  void lower(const Step& step, const ExpertMatMul& experts) {
    Op op = make_op(OpKind::kExpertMatMul, step);
    op.matrix = packed_.linear(kernels_, weight(step, 0));
    op.in[0] = input_for(op.matrix, step.inputs[0]);
    if (experts.bias) {
      op.numbers = decode_small(weight(step, 1));
      op.matrix.bias = op.numbers.data();
    }
    add_node(NodeKind::kExperts, std::move(op));
  }

  void lower(const Step& step, const Attention& attention) {
    if (!attention.shared) {
      Op store = make_op(OpKind::kStoreKv, step);
      store.in = {step.inputs[1], step.inputs[2]};
      store.out = -1;
      store.logit_rows = false;
      rows_node(std::move(store));
    }

    Op attend = make_op(OpKind::kAttend, step);
    attend.in = {step.inputs[0]};
    if (attention.sinks) attend.numbers = decode_small(weight(step, 0));
    std::vector<float> sinks = attend.numbers;
    add_node(NodeKind::kAttend, std::move(attend));

    Op merge = make_op(OpKind::kMerge, step);
    merge.in.clear();
    merge.numbers = std::move(sinks);
    rows_node(std::move(merge));
  }

  const ModelConfig& config_;
  const Plan& plan_;
  const Weights& weights_;
  const Kernels& kernels_;
  const PackedWeights& packed_;
  const bool fuse_;
  const int context_;
  const Adapters* const adapters_;
  const std::vector<bool>& unfused_steps_;
  Program program_;
  std::vector<int> quantised_[4];  // by Input: the buffer of each value
  std::vector<int> segments_;
  int angles_buffer_ = -1;
  int step_ = 0;
};

}  // namespace

Program compile(const ModelConfig& config, const Plan& plan, const Weights& weights, const CompileOptions& options) {
  Program program = Lowering(config, plan, weights, options).run();
  if (options.fuse) {
    fuse_glu(program);
    fuse_softcap(program);
    fuse_quantize(program);
    fuse_shared_input(program);
    fuse_rows(program);
  }
  place_buffers(program, options.block, options.fuse);
  return program;
}

}  // namespace doppler::cpu
