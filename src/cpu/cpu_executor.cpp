#include "cpu/cpu_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/say.h"
#include "base/threads.h"
#include "base/timeline.h"
#include "cpu/isa.h"
#include "cpu/node_times.h"
#include "cpu/run.h"

namespace doppler {
namespace cpu {
namespace {

constexpr int kPieceWorthAPass = 64;  // tokens, if the rest of a prompt must then be run by itself
constexpr int kDefaultBlock = 512;    // tokens: a tile of weights is unpacked once for all of them

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
    say_dim("{} MiB of memory are free and {} would need {}: the weights stay mapped, read with {}", available >> 20,
            best.name, bytes >> 20, other.name);
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

// Tokens of a pass at most. Where tokens see those behind them, every text must fit into one.
int block_for(const ModelConfig& config, int wished, int context) {
  return config.causal ? std::min(wished > 0 ? wished : kDefaultBlock, context) : context;
}

class CpuExecutor : public Executor {
 public:
  CpuExecutor(const ModelConfig& config, const Plan& plan, const Weights& weights, const ExecutorOptions& options,
              const CpuTuning& tuning)
      : config_(config),
        plan_(plan),
        weights_(weights),
        tuning_(tuning),
        wishes_(options.kernels),
        context_(checked(options.context, 1, "the context")),
        adapters_(options.adapters),
        block_(block_for(config, checked(options.block, 0, "the block"), context_)),
        pool_(checked(options.threads, 0, "the number of threads")),
        state_layout_(make_state_layout(plan_)),
        pages_(plan_) {
    check_kernel_wishes(wishes_, cpu::kernel_kinds(), name());
    state_.kernels = tuning.kernels ? tuning.kernels
                     : tuning.pack  ? &affordable_kernels(plan_, weights_)
                                    : &unpacked_kernels();
    if (!wishes_.empty()) {
      mixed_ = mixed_kernels(*state_.kernels, wishes_);
      state_.kernels = &mixed_;
    }
    packed_ = PackedWeights(*state_.kernels, matrices_of(plan_, weights_), pool_);
    for (const Tensor* matrix : matrices_of(plan_, weights_)) {
      phases_agree_ &= batch_invariant(packed_.linear(*state_.kernels, *matrix).input());
    }
    make_cache(options);
    state_.plan = &plan_;
    state_.cache = &*cache_;
    state_.pages = &pages_;
    state_.pass = &pass_;
    state_.context = context_;
    state_.state_layout = &state_layout_;
    state_.threads = pool_.size();
    partials_ = Memory(partial_floats(plan_, context_) * sizeof(float), "parts of attention");
    state_.partials = partials_.as<float>();
    if (timeline::on()) {
      job_ = [this](int index, int count) { run_nodes<true>(index, count); };
    } else {
      job_ = [this](int index, int count) { run_nodes<false>(index, count); };
    }
    prepare(tuning.fuse);
  }

  std::string_view name() const override { return "cpu"; }
  KvCache& cache() override { return *cache_; }
  size_t context_bytes() const override { return pages_.bytes() + states_.size(); }
  int min_prefill_tokens() const override {
    if (phases_agree_) return 1;
    return tuning_.min_gemm_tokens_packed > 0 ? tuning_.min_gemm_tokens_packed : state_.kernels->min_gemm_tokens_packed;
  }

  void set_tap(Tap tap) override { set_tap_at(std::move(tap), {}); }

  void set_tap_at(Tap tap, TapSteps steps) override {
    const bool fuse = tuning_.fuse && (!tap || !steps.empty());
    if (!tap) steps.clear();
    tap_ = std::move(tap);
    if (fuse == fused_ && steps == tapped_) return;
    tapped_ = std::move(steps);
    prepare(fuse);
  }

  std::vector<KernelKind> kernel_kinds() const override { return cpu::kernel_kinds(); }

  // The instruction set, and the form of a product's weights and input.
  std::string kernel_of(const Step& step) const override {
    std::string text = set_of(step);
    if (!std::holds_alternative<MatMul>(step.op) && !std::holds_alternative<ExpertMatMul>(step.op)) return text;
    const Tensor& weight = weights_.at(step.weights[0].slot);
    const Input input = make_linear(*state_.kernels, weight).input();
    static constexpr const char* kInputs[] = {"float", "8-bit", "15-bit", "8-bit"};
    return fmt::format("{}, {} weights, {} activations", text, name_of(weight.dtype),
                       kInputs[static_cast<size_t>(input)]);
  }

  std::span<const float> run(std::span<const BatchItem> batch) override {
    const size_t vocab = static_cast<size_t>(plan_.values[static_cast<size_t>(program_.output)].width);
    size_t wanted = 0;
    pending_.clear();
    for (const BatchItem& item : batch) {
      check_tokens(config_, item.tokens, item.sequence->length(), context_);
      check_adapters(adapters_.get(), *item.sequence);
      pending_.push_back({&item, item.tokens, static_cast<int32_t>(wanted)});
      wanted += item.want == Logits::kAll ? item.tokens.size() : item.want == Logits::kLast ? 1 : 0;
    }
    std::sort(pending_.begin(), pending_.end(), [](const Pending& a, const Pending& b) {
      return std::pair(order(*a.item), a.item) < std::pair(order(*b.item), b.item);
    });
    if (logits_.size() < wanted * vocab * sizeof(float)) {
      logits_ = Memory();
      logits_ = Memory(wanted * vocab * sizeof(float), "the logits");
    }
    state_.logits = logits_.as<float>();
    tapped_item_ = batch.data();
    while (!pending_.empty()) {
      fill_pass();
      take_input();
      run_pass();
      for (Pending& item : pending_) {
        if (item.now == 0) continue;
        cache_->append(*item.item->sequence, item.tokens.first(item.now), item.item->phase);
        item.tokens = item.tokens.subspan(item.now);
      }
      std::erase_if(pending_, [](const Pending& item) { return item.tokens.empty(); });
    }
    return {logits_.as<float>(), wanted * vocab};
  }

 private:
  // What is left of an item of a batch.
  struct Pending {
    const BatchItem* item;
    std::span<const int32_t> tokens;
    int32_t logits = 0;  // row of the logits where the next of its own goes
    size_t now = 0;      // tokens in the pass that is being run
  };

  // The instruction set that computes a step.
  std::string set_of(const Step& step) const {
    const auto& op = step.op;
    const bool product = std::holds_alternative<MatMul>(op) || std::holds_alternative<ExpertMatMul>(op);
    const bool state = std::holds_alternative<ShortConv>(op) || std::holds_alternative<DeltaNet>(op);
    const char* kind = product                                 ? "matmul"
                       : state                                 ? "state"
                       : std::holds_alternative<Attention>(op) ? "attention"
                       : std::holds_alternative<Norm>(op)      ? "norm"
                       : std::holds_alternative<Rope>(op)      ? "rope"
                       : std::holds_alternative<Glu>(op)       ? "glu"
                                                               : "all";
    const std::string wish(wish_for(wishes_, kind));
    return wish.empty() ? state_.kernels->name : wish;
  }

  // Rows of decode come first in a pass, and among the others those whose logits are the last token's (see Pass).
  static int order(const BatchItem& item) {
    if (item.phase == Phase::kDecode) return 0;
    return item.want == Logits::kAll ? 2 : 1;
  }

  void make_cache(const ExecutorOptions& options) {
    const KvLayout layout = make_kv_layout(plan_, kKeyTile, context_);
    KvCache::Options cache{.states = state_copies(state_layout_, options.sequences), .phases_agree = phases_agree_};
    if (options.stage) {
      cache = {.blocks = options.stage->blocks,
               .states = options.stage->states,
               .phases_agree = phases_agree_,
               .follows = true};
    } else {
      cache.pages = pages_for(options, layout);
    }
    cache_.emplace(layout, cache);
    if (adapters_) cache_->set_standard_adapters(adapters_->standard);
    pages_.allocate(cache_->pages());
    if (cache.states > 0) states_ = Memory::large(cache.states * state_layout_.bytes(), "the states of sequences");
    state_.states = states_.as<float>();
  }

  size_t pages_for(const ExecutorOptions& options, const KvLayout& layout) const {
    const uint64_t memory = options.cache_memory;
    const size_t least = layout.pages(block_, block_), bytes = pages_.page_bytes();
    const size_t count =
        memory > 0 ? memory / bytes : layout.pages(context_, block_) * static_cast<size_t>(options.sequences);
    if (count < least) {
      fail({.code = ErrorCode::kUsage,
            .what = "the cache has no room for a block of tokens",
            .where = "cpu",
            .expected = fmt::format("{} bytes at least", least * bytes),
            .got = fmt::format("{} bytes", memory),
            .todo = "Use a larger --cache-memory"});
    }
    return count;
  }

  // Takes as many rows as a pass has room for, and makes room for their keys.
  void fill_pass() {
    pass_.clear();
    size_t room = static_cast<size_t>(block_);
    for (Pending& p : pending_) {
      const BatchItem& item = *p.item;
      p.now = std::min(room, p.tokens.size());
      if (!config_.causal && p.now < p.tokens.size()) p.now = 0;  // in a later pass, whole
      if (p.now == 0) continue;
      if (item.phase == Phase::kPrefill)
        p.now = static_cast<size_t>(cache_->piece_of_prompt(*item.sequence, static_cast<int>(p.now), kPieceWorthAPass));
      room -= p.now;
      const std::span<const int32_t> tokens = p.tokens.first(p.now);
      const int back = item.phase == Phase::kDecode ? static_cast<int>(item.tokens.size() - p.tokens.size()) : 0;
      reserve_room(*cache_, *item.sequence, static_cast<int>(p.now), back);
      const bool last = p.now == p.tokens.size();
      const size_t logits = item.want == Logits::kAll ? p.now : item.want == Logits::kLast && last ? 1 : 0;
      const int rows = static_cast<int>(p.now), first = static_cast<int>(pass_.tokens.size());
      pass_.items.push_back({item.sequence, item.sequence->length(), first, rows,
                             static_cast<int>(pass_.logit_rows.size()), static_cast<int>(logits)});
      if (program_.input >= 0) {
        const size_t width = program_.buffers[static_cast<size_t>(program_.input)].row_bytes / sizeof(float);
        const size_t done = item.tokens.size() - p.tokens.size();
        pass_.inputs.push_back(item.input.subspan(done * width, p.now * width));
      }
      const int before = item.sequence->length() - 1;
      pass_.items.back().state_from = cache_->state(*item.sequence, before);
      pass_.items.back().state_to = cache_->state(*item.sequence, before + rows);
      pass_.tokens.insert(pass_.tokens.end(), tokens.begin(), tokens.end());
      pass_.item_of.resize(pass_.tokens.size(), static_cast<int32_t>(pass_.items.size()) - 1);
      for (int r = 0; r < rows; ++r) pass_.positions.push_back(item.sequence->length() + r);
      for (size_t i = 0; i < logits; ++i) {
        pass_.logit_rows.push_back(first + rows - static_cast<int>(logits - i));
        pass_.logit_places.push_back(p.logits++);
      }
      if (&item == tapped_item_) tapped_in_pass_ = static_cast<int>(pass_.items.size()) - 1;
      if (item.phase == Phase::kDecode) {
        pass_.decode_rows += rows;
        pass_.decode_logits += static_cast<int>(logits);
      }
      if (order(item) < 2) pass_.gemv_logits += static_cast<int>(logits);
    }
    find_adapted_rows();
    for (const KvCache::Copy copy : cache_->take_copies()) pages_.copy(copy.from, copy.to);
    for (const KvCache::Copy copy : cache_->take_state_copies())
      std::copy_n(state_at(copy.from), state_layout_.total, state_at(copy.to));
  }

  void find_adapted_rows() {
    const auto add = [&](int row, int pass_row, std::vector<AdaptedRow>& to) {
      const PassItem& item = pass_.items[static_cast<size_t>(pass_.item_of[static_cast<size_t>(pass_row)])];
      if (!item.sequence->adapters().empty()) to.push_back({row, item.sequence->adapters()});
    };
    for (int row = 0; row < static_cast<int>(pass_.tokens.size()); ++row) add(row, row, pass_.adapted);
    for (size_t i = 0; i < pass_.logit_rows.size(); ++i)
      add(static_cast<int>(i), pass_.logit_rows[i], pass_.adapted_logits);
    for (std::vector<AdaptedRow>* rows : {&pass_.adapted, &pass_.adapted_logits}) {
      std::sort(rows->begin(), rows->end(), [](const AdaptedRow& a, const AdaptedRow& b) {
        if (std::equal(a.uses.begin(), a.uses.end(), b.uses.begin(), b.uses.end())) return a.row < b.row;
        return std::lexicographical_compare(a.uses.begin(), a.uses.end(), b.uses.begin(), b.uses.end());
      });
    }
  }

  // The rows that a stage is handed, into their buffer.
  void take_input() {
    if (program_.input < 0) return;
    const Buffer& buffer = program_.buffers[static_cast<size_t>(program_.input)];
    for (size_t i = 0; i < pass_.items.size(); ++i) {
      std::byte* to = arena_.data() + buffer.offset + static_cast<size_t>(pass_.items[i].first_row) * buffer.row_bytes;
      std::memcpy(to, pass_.inputs[i].data(), pass_.inputs[i].size_bytes());
    }
  }

  float* state_at(PageId number) const { return states_.as<float>() + number * state_layout_.total; }

  void prepare(bool fuse) {
    fused_ = fuse;
    std::vector<bool> unfused;
    for (const Step& step : plan_.steps) {
      if (!tapped_.empty()) unfused.push_back(taps(tapped_, step));
    }
    program_ = compile(config_, plan_, weights_,
                       {.kernels = state_.kernels,
                        .packed = &packed_,
                        .block = block_,
                        .context = context_,
                        .adapters = adapters_.get(),
                        .fuse = fuse,
                        .unfused_steps = unfused});
    state_.program = &program_;
    if (timeline::on()) times_ = NodeTimes(program_, plan_);
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

  // What a thread begins a node with, where all rows are decoded.
  const std::byte* first_read(size_t node, int thread) const {
    const Node& reader = program_.nodes[node];
    if (reader.kind == NodeKind::kAttend) return first_keys(state_, reader, thread);
    return first_weights_[node * static_cast<size_t>(pool_.size()) + static_cast<size_t>(thread)];
  }

  // One parallel region for the whole pass; with a tap one up to each tapped step, so that the tap runs outside.
  void run_pass() {
    for (Counter& counter : counters_) counter.store(0, std::memory_order_relaxed);
    timeline::Span span;
    if (timeline::on()) {
      const Phase phase = pass_.decode_rows > 0 ? Phase::kDecode : Phase::kPrefill;
      span.begin(pass_name(phase, pass_.tokens.size(), pass_.items.size(), pass_.positions.front()), "token");
    }
    run_parts();
    if (timeline::on()) times_.write();
  }

  void run_parts() {
    if (!tap_) {
      first_node_ = 0;
      last_node_ = program_.nodes.size();
      pool_.run(job_);
      return;
    }
    first_node_ = 0;
    for (size_t n = 0; n < program_.nodes.size(); ++n) {
      const Node& node = program_.nodes[n];
      const bool seen = state_.rows(node.logit_rows) > 0 && node.finished_step >= 0 &&
                        taps(tapped_, plan_.steps[static_cast<size_t>(node.finished_step)]);
      if (!seen && n + 1 < program_.nodes.size()) continue;
      last_node_ = n + 1;
      pool_.run(job_);
      first_node_ = last_node_;
      if (seen) show_to_tap(node);
    }
    tapped_in_pass_ = -1;
  }

  void show_to_tap(const Node& node) {
    if (tapped_in_pass_ < 0) return;
    const PassItem& item = pass_.items[static_cast<size_t>(tapped_in_pass_)];
    const int first = node.logit_rows ? item.first_logit : item.first_row;
    const int rows = node.logit_rows ? item.logit_count : item.rows;
    if (rows == 0) return;
    const Step& step = plan_.steps[static_cast<size_t>(node.finished_step)];
    const size_t width = static_cast<size_t>(plan_.values[static_cast<size_t>(step.output)].width);
    const float* data = state_.at<float>(step.output, first, node.logit_rows, scratch_[0]);
    tap_(step, {data, static_cast<size_t>(rows) * width}, rows, item.position + item.rows - rows);
  }

  template <bool kTimed>
  void run_nodes(int thread, int count) {
    const Scratch& scratch = scratch_[static_cast<size_t>(thread)];
    FetchAhead ahead;
    const bool gemv = pass_.decode_rows == static_cast<int>(pass_.tokens.size());
    if (kTimed && thread == 0) times_.start();
    for (size_t n = first_node_; n < last_node_; ++n) {
      const Node& node = program_.nodes[n];
      if (state_.rows(node.logit_rows) == 0 || skipped(state_, node)) continue;
      const std::byte* next = gemv ? first_read(readers_[n], thread) : nullptr;
      ahead.expect(next);
      run_node(state_, node, Work(&counters_[n], counter_pitch_, thread, count), scratch, next);
      if (n + 1 == last_node_) {
        if (kTimed && thread == 0) times_.end_of(n);
        break;
      }
      const uint32_t round = pool_.arrive();
      while (!pool_.passed(round) && ahead.some()) {
      }
      pool_.wait(round);
      if (kTimed && thread == 0) times_.end_of(n);
    }
  }

  const ModelConfig config_;
  const Plan plan_;
  const Weights weights_;
  const CpuTuning tuning_;
  const KernelWishes wishes_;
  Kernels mixed_ = {};  // where there are wishes
  const int context_;
  const std::shared_ptr<const Adapters> adapters_;
  const int block_;
  ThreadPool pool_;
  const StateLayout state_layout_;
  KvPages pages_;
  Memory states_;
  std::optional<KvCache> cache_;
  PackedWeights packed_;
  bool phases_agree_ = true;  // no matrix is multiplied in other numbers by GEMV than by GEMM
  Program program_;
  std::vector<Pending> pending_;
  Pass pass_;
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
  NodeTimes times_;  // where there is a timeline
  Tap tap_;
  TapSteps tapped_;
  const BatchItem* tapped_item_ = nullptr;  // the first of the batch
  int tapped_in_pass_ = -1;                 // its number in the pass
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
