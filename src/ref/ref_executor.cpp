#include "ref/ref_executor.h"

#include "ref/ops.h"

namespace doppler {
namespace {

class RefExecutor : public Executor {
 public:
  RefExecutor(const ModelConfig& config, const Plan& plan, const Weights& weights, const ExecutorOptions& options)
      : config_(config), plan_(plan), weights_(weights), context_(options.context), caches_(config.layers.size()) {
    for (const RopeConfig& rope : config_.ropes) ropes_.push_back(make_rope_table(rope, config_.head_dim));
  }

  std::string_view name() const override { return "ref"; }
  int position() const override { return position_; }
  void set_tap(Tap tap) override { tap_ = std::move(tap); }

  void reset() override {
    position_ = 0;
    for (Cache& cache : caches_) cache = {};
  }

  size_t context_bytes() const override {
    return caches_.size() * 2 * static_cast<size_t>(context_) * static_cast<size_t>(config_.kv_width()) * sizeof(float);
  }

  std::span<const float> forward(std::span<const int32_t> tokens, Logits want) override {
    check_tokens(config_, tokens, position_, context_);
    tokens_ = tokens;
    values_.assign(plan_.values.size(), {});
    for (const Step& step : plan_.steps) {
      if (step.logits_only && want == Logits::kNone) break;
      if (step.logits_only && want == Logits::kLast) keep_last_row(step);
      std::vector<float>& out = values_[static_cast<size_t>(step.output)];
      const size_t rows = step.logits_only && want == Logits::kLast ? 1 : tokens.size();
      out.resize(rows * static_cast<size_t>(plan_.values[static_cast<size_t>(step.output)].width));
      step_ = &step;
      std::visit([&](const auto& op) { run(op, out); }, step.op);
      const int first = position_ + static_cast<int>(tokens.size() - rows);
      if (tap_) tap_(step, out, static_cast<int>(rows), first);
    }
    position_ += static_cast<int>(tokens.size());
    return want == Logits::kNone ? std::span<const float>() : values_[static_cast<size_t>(plan_.steps.back().output)];
  }

 private:
  struct Cache {
    std::vector<float> keys, values;  // [position, kv_width], every position kept
  };

  ref::In in(size_t i) const { return values_[static_cast<size_t>(step_->inputs[i])]; }
  int in_width(size_t i) const { return plan_.values[static_cast<size_t>(step_->inputs[i])].width; }
  const Tensor& weight(size_t i) const { return weights_.at(step_->weights[i].slot); }
  std::vector<float> small_weight(size_t i) const {
    return i < step_->weights.size() ? ref::decode(weight(i)) : std::vector<float>();
  }

  // The first logits-only step reads a value of all tokens; only its last row goes on.
  void keep_last_row(const Step& step) {
    for (const int input : step.inputs) {
      std::vector<float>& value = values_[static_cast<size_t>(input)];
      const auto width = static_cast<std::ptrdiff_t>(plan_.values[static_cast<size_t>(input)].width);
      value.erase(value.begin(), value.end() - width);
    }
  }

  void run(const Embed& op, ref::Out out) { ref::embed(weight(0), tokens_, op.scale, out); }
  void run(const Norm& op, ref::Out out) { ref::norm(in(0), small_weight(0), op.eps, op.offset, out); }
  void run(const MatMul&, ref::Out out) { ref::matmul(in(0), weight(0), small_weight(1), out); }
  void run(const Rope& op, ref::Out out) {
    ref::rope(in(0), in_width(0), op.head_dim, ropes_[static_cast<size_t>(op.rope)], position_, out);
  }
  void run(const Attention& op, ref::Out out) {
    Cache& cache = caches_[static_cast<size_t>(op.layer)];
    cache.keys.insert(cache.keys.end(), in(1).begin(), in(1).end());
    cache.values.insert(cache.values.end(), in(2).begin(), in(2).end());
    ref::attention(op, in(0), cache.keys, cache.values, small_weight(0), position_, out);
  }
  void run(const Glu& op, ref::Out out) {
    if (op.interleaved) {
      ref::glu_interleaved(op, in(0), out);
    } else {
      ref::glu(op, in(0), in(1), out);
    }
  }
  void run(const Add&, ref::Out out) { ref::add(in(0), in(1), out); }
  void run(const SoftCap& op, ref::Out out) { ref::softcap(in(0), op.cap, out); }
  void run(const Route& op, ref::Out out) {
    by_token(out, [&](size_t t, ref::Out row) { ref::route(row_of(0, t), op.k, row); });
  }
  void run(const ExpertMatMul& op, ref::Out out) {
    const std::vector<float> bias = small_weight(1);
    by_token(out,
             [&](size_t t, ref::Out row) { ref::expert_matmul(op, row_of(0, t), weight(0), bias, row_of(1, t), row); });
  }
  void run(const Combine& op, ref::Out out) {
    by_token(out, [&](size_t t, ref::Out row) { ref::combine(op.k, row_of(0, t), row_of(1, t), row); });
  }

  ref::In row_of(size_t i, size_t token) const {
    const size_t width = static_cast<size_t>(in_width(i));
    return in(i).subspan(token * width, width);
  }
  template <class Function>
  void by_token(ref::Out out, Function&& function) {
    const size_t width = static_cast<size_t>(plan_.values[static_cast<size_t>(step_->output)].width);
    for (size_t t = 0; t * width < out.size(); ++t) function(t, out.subspan(t * width, width));
  }

  const ModelConfig config_;
  const Plan plan_;
  const Weights weights_;
  const int context_;
  std::vector<RopeTable> ropes_;
  std::vector<Cache> caches_;
  std::vector<std::vector<float>> values_;
  std::span<const int32_t> tokens_;
  const Step* step_ = nullptr;
  Tap tap_;
  int position_ = 0;
};

}  // namespace

std::unique_ptr<Executor> make_ref_executor(const ModelConfig& config, const Plan& plan, const Weights& weights,
                                            const ExecutorOptions& options) {
  return std::make_unique<RefExecutor>(config, plan, weights, options);
}

}  // namespace doppler
