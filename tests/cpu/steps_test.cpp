// Every step on its own: the reference operation, given what this executor gave the step, must come to the same output.
// So no error of an earlier step hides or excuses one of a later step, and a router's close call changes nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "cpu/cpu_executor.h"
#include "cpu/isa.h"
#include "random_model.h"
#include "ref/ops.h"
#include "support/runner.h"

namespace doppler {
namespace {

using testing::RandomModel;
using Rows = std::vector<float>;

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
  void run(const Norm& op, ref::Out out) { ref::norm(in(0), small(0), op.eps, op.offset, out); }
  void run(const MatMul&, ref::Out out) { ref::matmul(in(0), weight(0), small(1), out); }
  void run(const Rope& op, ref::Out out) {
    const RopeTable table = make_rope_table(m_.config.ropes[static_cast<size_t>(op.rope)], op.head_dim, 64);
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
  void run(const Scale& op, ref::Out out) { ref::scale(op, in(0), width(step_->inputs[0]), 0, out); }
  void run(const SoftCap& op, ref::Out out) { ref::softcap(in(0), op.cap, out); }
  void run(const Route& op, ref::Out out) {
    by_token(out, [&](size_t t, ref::Out to) { ref::route(op, row(0, t), to); });
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
      case DType::kQ4_K:
      case DType::kQ6_K: return weights_in_bytes ? 2e-2 : 5.5 / 127 / 3.4641;
      default: return 2e-6;
    }
  }
  return std::holds_alternative<Attention>(step.op) ? 1e-4 : 2e-6;
}

struct Case {
  const char* name;
  ModelConfig (*config)();
};

class StepTest : public ::testing::TestWithParam<Case> {};

TEST_P(StepTest, AgreesWithItsReferenceOperation) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kMXFP4, DType::kQ6_K, DType::kQ4_K}) {
    const RandomModel m(GetParam().config(), type);
    for (const cpu::Kernels* kernels : cpu::available_kernels()) {
      for (const int block : {1, 5, 64}) {
        const auto tokens = m.tokens(26);
        const bool prefill = block == 64;
        const bool bytes = prefill && !cpu::batch_invariant(kernels->formats[cpu::kFormatQ4_K].input);
        const auto executor = testing::one_sequence(
            make_cpu_executor(m.config, m.plan, m.weights, {.context = 64, .threads = 2, .block = block},
                              {.kernels = kernels, .min_gemm_tokens_packed = prefill ? 9 : 27}));
        std::map<int, Rows> values;
        executor->set_tap([&](const Step& step, std::span<const float> data, int, int) {
          Rows& rows = values[step.output];
          rows.insert(rows.end(), data.begin(), data.end());
        });
        executor->forward(tokens, Logits::kAll);
        StepReference reference(m, tokens, values);
        for (const Step& step : m.plan.steps) {
          const Rows expected = reference.run(step);
          const Rows& got = values.at(step.output);
          ASSERT_EQ(got.size(), expected.size()) << step.name;
          double difference = 0, size = 0;
          for (size_t i = 0; i < got.size(); ++i) {
            difference += (double{got[i]} - expected[i]) * (double{got[i]} - expected[i]);
            size += double{expected[i]} * expected[i];
          }
          ASSERT_LE(std::sqrt(difference / size), bound_of(step, m.weights, bytes))
              << step.name << " " << name_of(type) << " " << kernels->name << " blocks of " << block;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StepTest,
                         ::testing::Values(Case{"plain", testing::plain_config}, Case{"quirky", testing::quirky_config},
                                           Case{"experts", testing::expert_config},
                                           Case{"multiplied", testing::multiplied_config},
                                           Case{"sparse", testing::sparse_config}, Case{"odd", testing::odd_config},
                                           Case{"odd_experts", testing::odd_expert_config},
                                           Case{"conv", testing::conv_config}, Case{"delta", testing::delta_config},
                                           Case{"delta_experts", testing::delta_expert_config}),
                         [](const auto& model) { return std::string(model.param.name); });

}  // namespace
}  // namespace doppler
