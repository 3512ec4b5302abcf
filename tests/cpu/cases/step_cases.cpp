#include "cpu/cases/step_cases.h"

#include <cmath>
#include <map>

#include "cpu/cpu_executor.h"
#include "cpu/random_model.h"
#include "ref/ops.h"

namespace doppler::cpu {
namespace {

using Rows = std::vector<float>;

constexpr int kTokens = 26, kContext = 64;

// Runs one step's reference operation on recorded inputs.
class StepReference {
 public:
  StepReference(const RandomModel& model, const std::vector<int32_t>& tokens, const std::map<int, Rows>& values)
      : m_(model), tokens_(tokens), values_(values) {}

  Rows run(const Step& step) {
    step_ = &step;
    Rows out(tokens_.size() * static_cast<size_t>(width(step.output)));
    std::visit([&](const auto& op) { run(op, out); }, step.op);
    return out;
  }

 private:
  int width(int value) const { return m_.plan.values[static_cast<size_t>(value)].width; }
  const Rows& in(size_t i) const { return values_.at(step_->inputs[i]); }
  ref::In row(size_t i, size_t t) const {
    const size_t w = static_cast<size_t>(width(step_->inputs[i]));
    return ref::In(in(i)).subspan(t * w, w);
  }
  const Tensor& weight(size_t i) const { return m_.weights.at(step_->weights[i].slot); }
  Rows small(size_t i) const { return i < step_->weights.size() ? ref::decode(weight(i)) : Rows(); }
  template <class Function>
  void by_token(ref::Out out, Function&& f) {
    const size_t w = static_cast<size_t>(width(step_->output));
    for (size_t t = 0; t < tokens_.size(); ++t) f(t, out.subspan(t * w, w));
  }

  void run(const Embed& op, ref::Out out) { ref::embed(weight(0), tokens_, op.scale, out); }
  void run(const Norm& op, ref::Out out) {
    const bool weighted = !step_->weights.empty();
    const Rows w = weighted ? small(0) : Rows(static_cast<size_t>(op.group), 1.0f);
    ref::norm(in(0), w, op.eps, weighted ? op.offset : 0, out);
  }
  void run(const MatMul&, ref::Out out) { ref::matmul(in(0), weight(0), small(1), out); }
  void run(const Rope& op, ref::Out out) {
    const RopeTable table = make_rope_table(m_.config.ropes[static_cast<size_t>(op.rope)], op.head_dim, kContext);
    ref::rope(in(0), width(step_->inputs[0]), op.head_dim, table, 0, out);
  }
  void run(const Attention& op, ref::Out out) { ref::attention(op, in(0), in(1), in(2), small(0), 0, out); }
  void run(const Glu& op, ref::Out out) {
    if (op.interleaved) {
      ref::glu_interleaved(op, in(0), out);
    } else {
      ref::glu(op, in(0), in(1), out);
    }
  }
  void run(const ShortConv& op, ref::Out out) {
    Rows state(static_cast<size_t>((op.kernel - 1) * op.channels));
    ref::short_conv(op, in(0), small(0), state, out);
  }
  void run(const DeltaNet& op, ref::Out out) {
    Rows state(static_cast<size_t>(op.value_heads * op.key_dim * op.value_dim));
    ref::delta_net(op, in(0), in(1), in(2), small(0), small(1), state, out);
  }
  void run(const Part& op, ref::Out out) { ref::part(op, in(0), out); }
  void run(const Add& op, ref::Out out) { ref::add(in(0), in(1), op.scale, out); }
  void run(Scale op, ref::Out out) {
    op.factor = factor_of(*step_, m_.weights);
    ref::scale(op, in(0), width(step_->inputs[0]), 0, out);
  }
  void run(const SoftCap& op, ref::Out out) { ref::softcap(in(0), op.cap, out); }
  void run(const Route& op, ref::Out out) {
    by_token(out, [&](size_t t, ref::Out to) { ref::route(op, row(0, t), small(0), to); });
  }
  void run(const ExpertMatMul& op, ref::Out out) {
    const Rows bias = small(1);
    by_token(out, [&](size_t t, ref::Out to) { ref::expert_matmul(op, row(0, t), weight(0), bias, row(1, t), to); });
  }
  void run(const Combine& op, ref::Out out) {
    by_token(out, [&](size_t t, ref::Out to) { ref::combine(op.k, row(0, t), row(1, t), to); });
  }

  const RandomModel& m_;
  const std::vector<int32_t>& tokens_;
  const std::map<int, Rows>& values_;
  const Step* step_ = nullptr;
};

// Relative to the whole output: f32 rounding; keys and values of 16 bits; activations, and with many tokens weights, of
// 8 bits.
double bound_of(const Step& step, const Weights& weights, bool weights_in_bytes) {
  const bool product = std::holds_alternative<MatMul>(step.op) || std::holds_alternative<ExpertMatMul>(step.op);
  if (product) {
    switch (weights.at(step.weights[0].slot).dtype) {
      case DType::kQ8_0: return 1e-4;
      case DType::kMXFP4:
        return 2e-4;  // the same activations, but few large weights, which average less away
      // The largest of a row of products of two values is up to 5.5 times their root mean square: a 127th of it is a
      // step, within which the error is uniform.
      case DType::kQ4_0:
      case DType::kQ4_1:
      case DType::kQ5_0:
      case DType::kQ5_1:
      case DType::kQ2_K:
      case DType::kQ3_K:
      case DType::kQ4_K:
      case DType::kQ5_K:
      case DType::kIQ4_NL:
      case DType::kIQ4_XS:
      case DType::kQ6_K: return weights_in_bytes ? 2e-2 : 5.5 / 127 / 3.4641;
      default: return 2e-6;
    }
  }
  return std::holds_alternative<Attention>(step.op) ? 1e-4 : 2e-6;
}

}  // namespace

std::vector<StepCase> step_cases(const Kernels& kernels, bool all) {
  using namespace testing;
  const ModelConfig configs[] = {plain_config(),  quirky_config(),       expert_config(),      multiplied_config(),
                                 sparse_config(), odd_config(),          odd_expert_config(),  conv_config(),
                                 delta_config(),  delta_expert_config(), layer_input_config(), beside_config()};
  constexpr DType kTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16,   DType::kQ8_0,  DType::kMXFP4, DType::kQ6_K,
                              DType::kQ4_K, DType::kQ4_0, DType::kQ4_1,   DType::kQ5_0,  DType::kQ5_1,  DType::kQ2_K,
                              DType::kQ3_K, DType::kQ5_K, DType::kIQ4_NL, DType::kIQ4_XS};
  std::vector<StepCase> cases;
  for (const ModelConfig& config : configs) {
    const bool every_type = all || config.id.starts_with("odd");  // matrices with a remainder in every direction
    for (const DType type : kTypes) {
      if (!every_type && type != DType::kQ4_K) continue;
      for (const int block : {1, 5, 64}) {
        if (all || block != 1) cases.push_back({config, type, &kernels, block, block == 64});
      }
    }
  }
  return cases;
}

std::vector<StepResult> check_steps(const StepCase& c) {
  const RandomModel m(c.config, c.type);
  const std::vector<int32_t> tokens = m.tokens(kTokens);
  const bool bytes = c.prefill && !batch_invariant(c.kernels->formats[kFormatQ4_K].input);
  const auto executor =
      make_cpu_executor(m.config, m.plan, m.weights, {.context = kContext, .threads = 2, .block = c.block},
                        {.kernels = c.kernels, .min_gemm_tokens_packed = c.prefill ? 9 : kTokens + 1});
  std::map<int, Rows> values;
  executor->set_tap([&](const Step& step, std::span<const float> data, int, int) {
    Rows& rows = values[step.output];
    rows.insert(rows.end(), data.begin(), data.end());
  });
  Context context(*executor);
  context.forward(tokens, Logits::kAll);
  StepReference reference(m, tokens, values);
  std::vector<StepResult> results;
  for (const Step& step : m.plan.steps) {
    const Rows expected = reference.run(step);
    const Rows& got = values.at(step.output);
    double difference = 0, size = 0;
    for (size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
      difference += (double{got[i]} - expected[i]) * (double{got[i]} - expected[i]);
      size += double{expected[i]} * expected[i];
    }
    const double error = got.size() == expected.size() ? std::sqrt(difference / size) : NAN;
    results.push_back({step.name, std::string(op_name(step.op)), error, bound_of(step, m.weights, bytes)});
  }
  return results;
}

}  // namespace doppler::cpu
