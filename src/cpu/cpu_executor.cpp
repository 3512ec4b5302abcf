#include "cpu/cpu_executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "cpu/isa.h"
#include "cpu/run.h"

namespace doppler {
namespace cpu {
namespace {

constexpr int kDefaultBlock = 512;  // tokens: a tile of weights is unpacked once for all of them

int checked(int value, int least, const char* what) {
  if (value < least) {
    fail({.code = ErrorCode::kUsage,
          .what = fmt::format("{} is too small", what),
          .where = "cpu",
          .expected = fmt::format("at least {}", least),
          .got = std::to_string(value)});
  }
  return value;
}

// The best kernels, unless they pack weights and the copy would not fit in memory: then the best that read them where
// they are mapped.
const Kernels& affordable_kernels(const Plan& plan, const Weights& weights) {
  const Kernels& best = choose_kernels();
  const size_t bytes = packed_bytes(best, matrices_of(plan, weights)), available = available_memory();
  if (bytes <= available) return best;
  const Kernels& other = unpacked_kernels();
  if (info_enabled()) {
    fmt::print(stderr, "{} MiB of memory are free and {} would need {}: the weights stay mapped, read with {}\n",
               available >> 20, best.name, bytes >> 20, other.name);
  }
  return other;
}

// What a thread is about to read, fetched into its second cache while it waits for the others.
class FetchAhead {
 public:
  void expect(const std::byte* data) {
    if (data == expected_) return;
    expected_ = at_ = data;
  }
  // Fetches a few lines; false when there is nothing left to fetch.
  bool some() {
    if (!expected_ || at_ >= expected_ + kBytes) return false;
    for (int i = 0; i < kLines; ++i, at_ += kLine) __builtin_prefetch(at_, 0, 2);
    return true;
  }

 private:
  static constexpr size_t kBytes = 256 << 10;  // a fraction of the second cache
  static constexpr int kLines = 4;
  const std::byte *expected_ = nullptr, *at_ = nullptr;
};

class CpuExecutor : public Executor {
 public:
  CpuExecutor(const ModelConfig& config, const Plan& plan, const Weights& weights, const ExecutorOptions& options,
              const CpuTuning& tuning)
      : config_(config),
        plan_(plan),
        weights_(weights),
        tuning_(tuning),
        context_(checked(options.context, 1, "the context")),
        block_(std::min(checked(options.block, 0, "the block") > 0 ? options.block : kDefaultBlock, context_)),
        pool_(checked(options.threads, 0, "the number of threads")),
        cache_(plan_, context_, block_) {
    state_.kernels = tuning.kernels ? tuning.kernels
                     : tuning.pack  ? &affordable_kernels(plan_, weights_)
                                    : &unpacked_kernels();
    packed_ = PackedWeights(*state_.kernels, matrices_of(plan_, weights_), pool_);
    state_.plan = &plan_;
    state_.cache = &cache_;
    state_.min_gemm_tokens_packed =
        tuning.min_gemm_tokens_packed > 0 ? tuning.min_gemm_tokens_packed : state_.kernels->min_gemm_tokens_packed;
    state_.context = context_;
    state_.threads = pool_.size();
    partials_ = Memory(partial_floats(plan_, context_) * sizeof(float), "parts of attention");
    state_.partials = partials_.as<float>();
    job_ = [this](int index, int count) { run_nodes(index, count); };
    prepare(tuning.fuse);
  }

  std::string_view name() const override { return "cpu"; }
  int position() const override { return position_; }
  void reset() override { position_ = 0; }
  size_t context_bytes() const override { return cache_.bytes(); }

  void set_tap(Tap tap) override { set_tap_at(std::move(tap), {}); }

  void set_tap_at(Tap tap, TapSteps steps) override {
    const bool fuse = tuning_.fuse && (!tap || !steps.empty());
    if (!tap) steps.clear();
    tap_ = std::move(tap);
    if (fuse == fused_ && steps == tapped_) return;
    tapped_ = std::move(steps);
    prepare(fuse);
  }

  // The instruction set, and the form of a product's weights and input.
  std::string kernel_of(const Step& step) const override {
    std::string text = state_.kernels->name;
    if (!std::holds_alternative<MatMul>(step.op) && !std::holds_alternative<ExpertMatMul>(step.op)) return text;
    const Tensor& weight = weights_.at(step.weights[0].slot);
    const Input input = make_linear(*state_.kernels, weight).input();
    static constexpr const char* kInputs[] = {"float", "8-bit", "15-bit", "8-bit"};
    return fmt::format("{}, {} weights, {} activations", text, name_of(weight.dtype),
                       kInputs[static_cast<size_t>(input)]);
  }

  std::span<const float> forward(std::span<const int32_t> tokens, Logits want) override {
    check_tokens(config_, tokens, position_, context_);
    const size_t vocab = static_cast<size_t>(plan_.values[static_cast<size_t>(program_.output)].width);
    const size_t wanted = want == Logits::kAll ? tokens.size() : want == Logits::kLast ? 1 : 0;
    if (logits_.size() < wanted * vocab * sizeof(float)) {
      logits_ = Memory();
      logits_ = Memory(wanted * vocab * sizeof(float), "the logits");
    }
    state_.logits = logits_.as<float>();
    while (!tokens.empty()) {
      const size_t count = std::min(tokens.size(), static_cast<size_t>(block_));
      state_.tokens = tokens.first(count);
      state_.position = position_;
      const bool last = count == tokens.size();
      state_.logit_count = want == Logits::kAll ? static_cast<int>(count) : want == Logits::kLast && last ? 1 : 0;
      run_block();
      state_.logits += static_cast<size_t>(state_.logit_count) * vocab;
      position_ += static_cast<int>(count);
      tokens = tokens.subspan(count);
    }
    return {logits_.as<float>(), wanted * vocab};
  }

 private:
  void prepare(bool fuse) {
    fused_ = fuse;
    std::vector<bool> unfused;
    for (const Step& step : plan_.steps) {
      if (!tapped_.empty()) unfused.push_back(taps(tapped_, step));
    }
    program_ = compile(
        config_, plan_, weights_,
        {.kernels = state_.kernels, .packed = &packed_, .block = block_, .fuse = fuse, .unfused_steps = unfused});
    state_.program = &program_;
    arena_ = Memory();
    arena_ = Memory::large(program_.arena_bytes, "activations");
    state_.arena = arena_.data();
    if (tracing(Trace::kBuffers)) {
      trace(Trace::kBuffers, fmt::format("{:>12} bytes  activations of {} tokens", program_.arena_bytes, block_));
    }
    if (tracing(Trace::kKernels)) {
      trace(Trace::kKernels, fmt::format("{} with {} threads, {} steps in {} nodes", state_.kernels->name, pool_.size(),
                                         plan_.steps.size(), program_.nodes.size()));
    }
    // All of one thread's beside each other, not all of one node's: threads that count in the same line of a cache
    // take it from each other at every piece.
    counter_pitch_ =
        round_up(program_.nodes.size() * sizeof(Counter), kLine) / sizeof(Counter) + kLine / sizeof(Counter);
    counters_ = std::vector<Counter>(counter_pitch_ * static_cast<size_t>(pool_.size()));
    find_readers();
    const size_t each = round_up(scratch_bytes(program_, plan_, block_), 4096);
    scratch_memory_ = Memory();
    scratch_memory_ = Memory::large(each * static_cast<size_t>(pool_.size()), "scratch of the threads");
    scratch_.clear();
    for (int i = 0; i < pool_.size(); ++i) {
      scratch_.push_back(make_scratch(program_, plan_, block_, scratch_memory_.data() + each * static_cast<size_t>(i)));
    }
  }

  void find_readers() {
    const size_t count = program_.nodes.size(), threads = static_cast<size_t>(pool_.size());
    const auto reads = [&](size_t n) {
      return program_.nodes[n].kind == NodeKind::kMatMul || program_.nodes[n].kind == NodeKind::kAttend;
    };
    readers_.assign(count, 0);
    first_weights_.assign(count * threads, nullptr);
    for (size_t n = 0; n < count; ++n) {
      size_t other = (n + 1) % count;  // behind the last node comes the next token
      while (other != n && !reads(other)) other = (other + 1) % count;
      readers_[n] = other;
      for (size_t t = 0; t < threads; ++t) {
        first_weights_[n * threads + t] = first_weights(program_.nodes[n], static_cast<int>(t), pool_.size());
      }
    }
  }

  // What a thread begins a node with, where tokens are few.
  const std::byte* first_read(size_t node, int thread) const {
    const Node& reader = program_.nodes[node];
    if (reader.kind == NodeKind::kAttend) return first_keys(state_, reader, thread);
    return first_weights_[node * static_cast<size_t>(pool_.size()) + static_cast<size_t>(thread)];
  }

  // One parallel region for the whole block; with a tap one up to each tapped step, so that the tap runs outside.
  void run_block() {
    for (Counter& counter : counters_) counter.store(0, std::memory_order_relaxed);
    if (!tap_) {
      first_node_ = 0;
      last_node_ = program_.nodes.size();
      pool_.run(job_);
      return;
    }
    first_node_ = 0;
    for (size_t n = 0; n < program_.nodes.size(); ++n) {
      const Node& node = program_.nodes[n];
      const int rows = state_.rows(node.logit_rows);
      const bool seen =
          rows > 0 && node.finished_step >= 0 && taps(tapped_, plan_.steps[static_cast<size_t>(node.finished_step)]);
      if (!seen && n + 1 < program_.nodes.size()) continue;
      last_node_ = n + 1;
      pool_.run(job_);
      first_node_ = last_node_;
      if (!seen) continue;
      const Step& step = plan_.steps[static_cast<size_t>(node.finished_step)];
      const size_t width = static_cast<size_t>(plan_.values[static_cast<size_t>(step.output)].width);
      const float* data = state_.at<float>(step.output, 0, node.logit_rows, scratch_[0]);
      tap_(step, {data, static_cast<size_t>(rows) * width}, rows, position_ + state_.first_row(node.logit_rows));
    }
  }

  void run_nodes(int thread, int count) {
    const Scratch& scratch = scratch_[static_cast<size_t>(thread)];
    FetchAhead ahead;
    const bool gemv = state_.tokens.size() < static_cast<size_t>(state_.min_gemm_tokens_packed);
    for (size_t n = first_node_; n < last_node_; ++n) {
      const Node& node = program_.nodes[n];
      if (state_.rows(node.logit_rows) == 0 || skipped(state_, node)) continue;
      const std::byte* next = gemv ? first_read(readers_[n], thread) : nullptr;
      ahead.expect(next);
      run_node(state_, node, Work(&counters_[n], counter_pitch_, thread, count), scratch, next);
      if (n + 1 == last_node_) break;
      const uint32_t round = pool_.arrive();
      while (!pool_.passed(round) && ahead.some()) {
      }
      pool_.wait(round);
    }
  }

  const ModelConfig config_;
  const Plan plan_;
  const Weights weights_;
  const CpuTuning tuning_;
  const int context_, block_;
  ThreadPool pool_;
  KvCache cache_;
  PackedWeights packed_;
  Program program_;
  RunState state_;
  Memory arena_, scratch_memory_, partials_, logits_;
  std::vector<Scratch> scratch_;
  std::vector<Counter> counters_;
  std::vector<size_t> readers_;                  // of each node: the next one that reads weights or keys
  std::vector<const std::byte*> first_weights_;  // [node][thread]
  size_t counter_pitch_ = 0;
  std::function<void(int, int)> job_;
  size_t first_node_ = 0, last_node_ = 0;
  bool fused_ = false;
  Tap tap_;
  TapSteps tapped_;
  int position_ = 0;
};

}  // namespace
}  // namespace cpu

std::unique_ptr<Executor> make_cpu_executor(const ModelConfig& config, const Plan& plan, const Weights& weights,
                                            const ExecutorOptions& options, const CpuTuning& tuning) {
  return std::make_unique<cpu::CpuExecutor>(config, plan, weights, options, tuning);
}

std::unique_ptr<Executor> make_cpu_executor(const ModelConfig& config, const Plan& plan, const Weights& weights,
                                            const ExecutorOptions& options) {
  return make_cpu_executor(config, plan, weights, options, CpuTuning{});
}

}  // namespace doppler
