#include "ref/ref_executor.h"

#include <algorithm>

#include "base/timeline.h"

#include "model/state_layout.h"
#include "ref/ops.h"

namespace doppler {
namespace {

class RefExecutor : public Executor {
 public:
  RefExecutor(const ModelConfig& config, const Plan& plan, const Weights& weights, const ExecutorOptions& options,
              CacheRounding rounding)
      : config_(config),
        plan_(plan),
        weights_(weights),
        context_(options.context),
        adapters_(options.adapters),
        rounding_(std::move(rounding)),
        state_layout_(make_state_layout(plan)),
        cache_(make_kv_layout(plan, kPageTokens, context_), cache_options(options)),
        pages_(cache_.pages()),
        states_(cache_.states()) {
    if (adapters_) cache_.set_standard_adapters(adapters_->standard);
    for (size_t r = 0; r < config_.ropes.size(); ++r) {
      ropes_.push_back(make_rope_table(config_.ropes[r], config_.head_dim_of_rope(static_cast<int>(r)), context_));
    }
  }

  std::string_view name() const override { return "ref"; }
  void set_tap(Tap tap) override { tap_ = std::move(tap); }
  KvCache& cache() override { return cache_; }
  size_t context_bytes() const override {
    return cache_.pages() * page_bytes() + cache_.states() * state_layout_.bytes();
  }

  // One sequence after another.
  std::span<const float> run(std::span<const BatchItem> batch) override {
    for (const BatchItem& item : batch) {
      check_tokens(config_, item.tokens, item.sequence->length(), context_);
      check_adapters(adapters_.get(), *item.sequence);
    }
    logits_.clear();
    for (const BatchItem& item : batch) {
      reserve_room(cache_, *item.sequence, static_cast<int>(item.tokens.size()));
      for (const KvCache::Copy copy : cache_.take_copies()) pages_[copy.to] = pages_[copy.from];
      for (const KvCache::Copy copy : cache_.take_state_copies()) states_[copy.to] = states_[copy.from];
      go_on_from_state(item);
      run(item, &item == batch.data());
      cache_.append(*item.sequence, item.tokens, item.phase);
    }
    return logits_;
  }

 private:
  static constexpr int kPageTokens = 4;  // small, so that the smallest texts cross pages

  // Of a layer with the most.
  size_t page_bytes() const {
    int width = 0;
    for (int i = 0; i < config_.layer_count(); ++i) width = std::max(width, config_.kv_width_of(i));
    return 2 * kPageTokens * static_cast<size_t>(width) * sizeof(float);
  }
  KvCache::Options cache_options(const ExecutorOptions& options) const {
    if (options.stage) {
      return {.blocks = options.stage->blocks, .states = options.stage->states, .phases_agree = true, .follows = true};
    }
    return {.pages = pages_of(options), .states = state_copies(state_layout_, options.sequences), .phases_agree = true};
  }
  size_t pages_of(const ExecutorOptions& options) const {
    if (options.cache_memory > 0) return options.cache_memory / page_bytes();
    return make_kv_layout(plan_, kPageTokens, context_).pages(context_, context_) *
           static_cast<size_t>(options.sequences);
  }

  // The state before the item's tokens, where they will leave theirs.
  void go_on_from_state(const BatchItem& item) {
    if (state_layout_.total == 0) return;
    const int before = item.sequence->length() - 1, last = before + static_cast<int>(item.tokens.size());
    const uint32_t from = cache_.state(*item.sequence, before), to = cache_.state(*item.sequence, last);
    if (from == KvCache::kNoState) {
      states_[to].assign(state_layout_.total, 0);
    } else if (from != to) {
      states_[to] = states_[from];
    }
    state_ = states_[to];
  }
  ref::Out state_of(int number) {
    return state_.subspan(state_layout_.offsets[static_cast<size_t>(number)],
                          state_layout_.floats[static_cast<size_t>(number)]);
  }

  void run(const BatchItem& item, bool tapped) {
    sequence_ = item.sequence;
    position_ = item.sequence->length();
    tokens_ = item.tokens;
    values_.assign(plan_.values.size(), {});
    if (plan_.input >= 0) values_[static_cast<size_t>(plan_.input)].assign(item.input.begin(), item.input.end());
    timeline::Span pass;
    if (timeline::on()) pass.begin(pass_name(item.phase, tokens_.size(), 1, position_), "token");
    for (const Step& step : plan_.steps) {
      if (step.logits_only && item.want == Logits::kNone) break;
      if (step.logits_only && item.want == Logits::kLast) keep_last_row(step);
      std::vector<float>& out = values_[static_cast<size_t>(step.output)];
      const size_t rows = step.logits_only && item.want == Logits::kLast ? 1 : tokens_.size();
      out.resize(rows * static_cast<size_t>(plan_.values[static_cast<size_t>(step.output)].width));
      step_ = &step;
      timeline::Span span;
      if (timeline::on()) span.begin(step.name, "step");
      std::visit([&](const auto& op) { run(op, out); }, step.op);
      const int first = position_ + static_cast<int>(tokens_.size() - rows);
      if (tap_ && tapped) tap_(step, out, static_cast<int>(rows), first);
    }
    if (item.want == Logits::kNone) return;
    const std::vector<float>& logits = values_[static_cast<size_t>(plan_.steps.back().output)];
    logits_.insert(logits_.end(), logits.begin(), logits.end());
  }

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
  void run(const Norm& op, ref::Out out) {
    const bool weighted = !step_->weights.empty();
    const std::vector<float> ones(static_cast<size_t>(weighted ? 0 : op.group), 1.0f);
    ref::norm(in(0), weighted ? small_weight(0) : ones, op.eps, weighted ? op.offset : 0, out);
  }
  void run(const MatMul&, ref::Out out) {
    ref::matmul(in(0), weight(0), small_weight(1), out);
    for (const AdapterUse& use : sequence_->adapters()) {
      const LoraPair* pair = adapters_->all[static_cast<size_t>(use.adapter)].find(step_->weights[0].slot);
      if (pair) ref::add_lora(*pair, use.scale, in(0), out);
    }
  }
  void run(const Rope& op, ref::Out out) {
    ref::rope(in(0), in_width(0), op.head_dim, ropes_[static_cast<size_t>(op.rope)], position_, out);
  }
  // Writes the new keys and values into their pages and lays all out in the order of positions; what slid out of a
  // window is not there, and not seen.
  void run(const Attention& op, ref::Out out) {
    const size_t width = static_cast<size_t>(op.kv_heads * op.head_dim);
    const int end = position_ + static_cast<int>(tokens_.size());
    std::vector<float> keys(static_cast<size_t>(end) * width), values(keys.size());
    for (int p = op.window > 0 ? std::max(0, position_ - op.window + 1) : 0; p < end; ++p) {
      std::vector<float>& page = pages_[cache_.page(*sequence_, op.layer, p)];
      page.resize(2 * kPageTokens * width);
      const auto key = page.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(p % kPageTokens) * width);
      const auto value = key + static_cast<std::ptrdiff_t>(kPageTokens * width);
      if (p >= position_ && !op.shared) {
        const size_t row = static_cast<size_t>(p - position_) * width;
        std::copy_n(in(1).begin() + static_cast<std::ptrdiff_t>(row), width, key);
        std::copy_n(in(2).begin() + static_cast<std::ptrdiff_t>(row), width, value);
        if (rounding_) rounding_(op, {&*key, width}, {&*value, width});
      }
      std::copy_n(key, width, keys.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(p) * width));
      std::copy_n(value, width, values.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(p) * width));
    }
    ref::attention(op, in(0), keys, values, small_weight(0), position_, out);
  }
  void run(const Glu& op, ref::Out out) {
    if (op.interleaved) {
      ref::glu_interleaved(op, in(0), out);
    } else {
      ref::glu(op, in(0), in(1), out);
    }
  }
  void run(const ShortConv& op, ref::Out out) { ref::short_conv(op, in(0), small_weight(0), state_of(op.state), out); }
  void run(const DeltaNet& op, ref::Out out) {
    ref::delta_net(op, in(0), in(1), in(2), small_weight(0), small_weight(1), state_of(op.state), out);
  }
  void run(const Part& op, ref::Out out) { ref::part(op, in(0), out); }
  void run(const Add& op, ref::Out out) { ref::add(in(0), in(1), op.scale, out); }
  void run(Scale op, ref::Out out) {
    op.factor = factor_of(*step_, weights_);
    ref::scale(op, in(0), in_width(0), position_, out);
  }
  void run(const SoftCap& op, ref::Out out) { ref::softcap(in(0), op.cap, out); }
  void run(const Route& op, ref::Out out) {
    const std::vector<float> scale = small_weight(0);
    by_token(out, [&](size_t t, ref::Out row) { ref::route(op, row_of(0, t), scale, row); });
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
  const std::shared_ptr<const Adapters> adapters_;
  const CacheRounding rounding_;
  std::vector<RopeTable> ropes_;
  const StateLayout state_layout_;
  KvCache cache_;
  std::vector<std::vector<float>> pages_;   // [page_tokens, kv_width] of keys, then of values
  std::vector<std::vector<float>> states_;  // by number, as state_layout_ says
  ref::Out state_;                          // of the item that runs
  std::vector<std::vector<float>> values_;
  std::vector<float> logits_;
  const Sequence* sequence_ = nullptr;
  std::span<const int32_t> tokens_;
  const Step* step_ = nullptr;
  Tap tap_;
  int position_ = 0;
};

}  // namespace

std::unique_ptr<Executor> make_ref_executor(const ModelConfig& config, const Plan& plan, const Weights& weights,
                                            const ExecutorOptions& options) {
  return std::make_unique<RefExecutor>(config, plan, weights, options, nullptr);
}

std::unique_ptr<Executor> make_rounding_ref_executor(const ModelConfig& config, const Plan& plan,
                                                     const Weights& weights, const ExecutorOptions& options,
                                                     CacheRounding rounding) {
  return std::make_unique<RefExecutor>(config, plan, weights, options, std::move(rounding));
}

}  // namespace doppler
