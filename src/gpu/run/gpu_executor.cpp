#include "gpu/run/gpu_executor.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <optional>

#include "base/error.h"
#include "base/timeline.h"
#include "gpu/run/decode_program.h"
#include "gpu/run/expert_pager.h"
#include "gpu/run/kernel_kinds.h"
#include "gpu/run/step_program.h"

namespace doppler {
namespace {

using namespace gpu;

constexpr int kBlock = 512;                        // tokens of a prefill block
constexpr uint64_t kAllLogitsBytes = 64ull << 20;  // logits of every token of a block, at most
constexpr int kProfiledTokens = 16;
constexpr int kPieceWorthABlock = 16;  // tokens, if the rest of a prompt must then be run by itself
constexpr int kTokensASubmit = 4;      // at most: longer ones take so long to encode that the GPU may run dry
constexpr int kBatchWorthGoingOn = 4;  // a slower device would lose more by a token that nobody wants than it gains
constexpr size_t kMaxPrograms = 8;     // recordings of block sizes kept
constexpr uint32_t kMaxColumns = 256;  // sequences of one pass

// "matvec reduce=subgroup threads=256", by step.
void add_kernels(const Recording& recording, std::map<std::string, std::string>& kernels) {
  for (const Recording::Command& command : recording.commands()) {
    const auto* dispatch = std::get_if<Recording::Dispatch>(&command);
    if (!dispatch) continue;
    std::string& text = kernels[dispatch->step];
    if (!text.empty()) text += ", then ";
    text += dispatch->kernel.source().name;
    if (!dispatch->kernel.variant().empty()) text += " " + dispatch->kernel.variant();
  }
}

// Tokens of a block. Where tokens see those behind them, every text is one.
int block_for(const ModelConfig& config, const ExecutorOptions& options) {
  const int block = options.block > 0 && config.causal ? options.block : config.causal ? kBlock : options.context;
  return std::max(1, std::min(block, options.context));
}

class GpuExecutor : public Executor {
 public:
  GpuExecutor(const ModelConfig& config, const Plan& plan, const Weights& weights, const ExecutorOptions& options,
              const GpuTuning& tuning)
      : device_({.adapter = options.device,
                 .unchecked = !options.checked,
                 .kernels = options.kernels,
                 .believed = tuning.believed}),
        block_(block_for(config, options)),
        width_(plan.values[static_cast<size_t>(plan.steps.back().output)].width),
        budget_{options.gpu_memory, static_cast<int>(max_rows_of_logits(config)), 0},
        adapters_(options.adapters),
        c_(check_budget(device_, config, plan, weights, cache_size(options), budget_, adapters_.get()), config, plan,
           weights, cache_size(options), budget_.bytes > 0, adapters_.get()),
        memory_(std::make_shared<ActivationBuffers>(c_, share_buffers(c_.plan, single_steps(c_.plan)), block_)),
        weights_(weights) {
    check_kernel_wishes(options.kernels, kernel_kinds(), name());
    if (adapters_) cache().set_standard_adapters(adapters_->standard);
    if (budget_.bytes > 0) pager_ = place_experts(c_, weights_, budget_);
  }

  std::string_view name() const override { return "webgpu"; }
  KvCache& cache() override { return c_.kv.cache(); }
  void set_tap(Tap tap) override { set_tap_at(std::move(tap), {}); }
  void set_tap_at(Tap tap, TapSteps steps) override {
    tap_ = std::move(tap);
    tapped_ = std::move(steps);
    tapped_program_.reset();
    tapped_decode_.reset();
    if (budget_.tapped > 0) make_room(0);
  }
  std::string kernel_of(const Step& step) const override {
    const auto found = kernels_.find(step.name);
    return found == kernels_.end() ? "" : found->second;
  }
  std::vector<KernelKind> kernel_kinds() const override { return gpu::kernel_kinds(c_); }
  DeviceCounters counters() const override {
    DeviceCounters counters{device_.submits(), device_.dispatches(), device_.allocated_bytes()};
    counters.expert_hits = hits_before_ + (pager_ ? pager_->hits() : 0);
    counters.expert_misses = misses_before_ + (pager_ ? pager_->misses() : 0);
    return counters;
  }
  size_t context_bytes() const override { return c_.kv.bytes(); }

  bool can_choose() const override { return can_run_columns() && (!adapters_ || adapters_->standard.empty()); }
  std::span<const int32_t> best() const override { return best_; }

  // Tokens that many sequences decode run together, prompts item after item. A tap sees the first item.
  std::span<const float> run(std::span<const BatchItem> batch) override {
    place_logits(batch);
    for (const BatchItem& item : batch) {
      check_tokens(c_.config, item.tokens, item.sequence->length(), c_.context);
      check_adapters(adapters_.get(), *item.sequence);
    }
    std::vector<size_t> choosing, others;
    for (size_t i = 0; i < batch.size(); ++i) {
      if (batch[i].want == Logits::kBest) {
        choosing.push_back(i);
      } else if (in_block(batch[i]) || batch[i].tokens.size() > 1 || !can_run_columns() ||
                 adapted(*batch[i].sequence)) {
        run_item(batch, i);
      } else {
        others.push_back(i);
      }
    }
    for (const bool best : {true, false}) {
      std::span<const size_t> items = best ? choosing : others;
      if (items.size() == 1) {
        run_item(batch, items[0]);
        continue;
      }
      const size_t most = max_columns(!best);
      for (; !items.empty(); items = items.subspan(std::min(most, items.size()))) {
        run_columns(batch, items.first(std::min(most, items.size())), best);
      }
    }
    read_kept();
    return {logits_.get(), rows_ * static_cast<size_t>(width_)};
  }

  std::vector<int32_t> decode(Sequence& sequence, int32_t token, int count, const Sampling& sampling, uint64_t draw,
                              bool more) override {
    count = std::min({count, kMaxDecodeBatch, c_.context - sequence.length()});
    if (count < 1 || !can_fuse(static_cast<bool>(tap_)) || adapted(sequence)) return {};
    check_tokens(c_.config, std::span(&token, 1), sequence.length(), c_.context);
    timeline::Span span;
    uint64_t start = 0;
    if (timeline::on()) {
      span.begin(pass_name(Phase::kDecode, static_cast<size_t>(count), 1, sequence.length()), "token");
      start = timeline::now();
    }
    std::vector<int32_t> chosen = tap_ ? decode_tapped(sequence, token, count, sampling, draw)
                                       : decode_ahead(sequence, token, count, sampling, draw, more);
    if (timeline::on() && chosen.size() > 1) show_tokens(sequence.length(), chosen.size(), start);
    std::vector<int32_t> ran = {token};
    ran.insert(ran.end(), chosen.begin(), chosen.end() - 1);
    cache().append(sequence, ran, Phase::kDecode);
    return chosen;
  }

  // The host does not see when each of several tokens was chosen: they share the time.
  static void show_tokens(int position, size_t count, uint64_t begin) {
    const uint64_t length = timeline::now() - begin;
    for (size_t i = 0; i < count; ++i) {
      const std::string name = pass_name(Phase::kDecode, 1, 1, position + static_cast<int>(i));
      timeline::add(timeline::event(name, "token", timeline::Track::kTokens, R"({"time":"an even share"})"),
                    begin + length * i / count, begin + length * (i + 1) / count);
    }
  }

  std::vector<int32_t> decode_ahead(Sequence& sequence, int32_t token, int count, const Sampling& sampling,
                                    uint64_t draw, bool more) {
    prepare_decode(sampling);
    const int end = sequence.length() + count;
    const bool begun = begun_ && begun_->sequence == sequence.id() && begun_->position == sequence.length() &&
                       begun_->token == token && begun_->draw == draw;
    if (!begun) produced_ = 0;
    // And at the next one while these are read and looked at, where there is room for it.
    bool go_on = more && count >= kBatchWorthGoingOn && end < c_.context &&
                 produced_ + count + 1 + kMaxDecodeBatch <= DecodeProgram::kKeptTokens;
    go_on = go_on && cache().reserve(sequence, count + 1);
    take(sequence, count + (go_on ? 1 : 0));
    if (!begun) begin(*decode_, sequence, token, draw);
    begun_.reset();
    submit_tokens(*decode_, begun ? 1 : 0, count);
    ask_for_chosen(count);
    produced_ += count;
    if (go_on) device_.submit(decode_->recording());
    std::vector<int32_t> chosen(static_cast<size_t>(count));
    device_.end_read(chosen_, std::as_writable_bytes(std::span(chosen)));
    if (end_at_not_finite(chosen)) go_on = false;
    if (go_on) begun_ = Begun{sequence.id(), end, chosen.back(), draw + static_cast<uint64_t>(count)};
    return chosen;
  }

  // The same, with the values of tapped steps kept on the GPU for every token and read after the submit.
  std::vector<int32_t> decode_tapped(Sequence& sequence, int32_t token, int count, const Sampling& sampling,
                                     uint64_t draw) {
    prepare_tapped_decode(sampling);
    count = std::min(count, tapped_decode_->taps().max_tokens());
    take(sequence, count);
    begin(*tapped_decode_, sequence, token, draw);
    submit_tokens(*tapped_decode_, 0, count);
    auto chosen = gpu::read<int32_t>(device_, tapped_decode_->out_tokens(), static_cast<size_t>(count));
    end_at_not_finite(chosen);
    tapped_decode_->taps().hand_over(static_cast<int>(chosen.size()), sequence.length(), tap_);
    return chosen;
  }

  // What was chosen behind such a token has no meaning.
  static bool end_at_not_finite(std::vector<int32_t>& chosen) {
    const auto first = std::find_if(chosen.begin(), chosen.end(), [](int32_t token) { return token < 0; });
    if (first == chosen.end()) return false;
    chosen.erase(first + 1, chosen.end());
    return true;
  }

  DecodeProfile profile(Sequence& sequence, int32_t token) override {
    if (!device_.capabilities().timestamps || !DecodeProgram::possible(c_) || adapted(sequence)) return {};
    check_tokens(c_.config, std::span(&token, 1), sequence.length(), c_.context);
    prepare_decode(Sampling{});
    DecodeProfile profile;
    profile.batch = std::min(kProfiledTokens, c_.context - sequence.length());
    take(sequence, profile.batch);
    const auto start_again = [&] {
      set_state({static_cast<uint32_t>(sequence.length()), static_cast<uint32_t>(token)});
    };
    start_again();
    profile.gpu_ns = device_.time_ns(decode_->recording(), profile.batch) / profile.batch;
    start_again();
    device_.wait();
    const HostTimes before = device_.host_times();
    device_.submit(decode_->recording(), profile.batch);
    const HostTimes after = device_.host_times();
    device_.wait();
    const auto start = std::chrono::steady_clock::now();
    gpu::read<int32_t>(device_, decode_->out_tokens(), static_cast<size_t>(profile.batch));
    const std::chrono::duration<double, std::nano> read = std::chrono::steady_clock::now() - start;
    profile.encode_ns = (after.encode_ns - before.encode_ns) / profile.batch;
    profile.submit_ns = (after.submit_ns - before.submit_ns) / profile.batch;
    profile.read_ns = read.count() / profile.batch;
    start_again();
    for (StepTime& time : device_.profile(decode_->recording())) {
      profile.dispatches.push_back({std::move(time.step), time.begin_ns, time.end_ns});
    }
    cache().append(sequence, std::span(&token, 1), Phase::kDecode);
    return profile;
  }

 private:
  CacheSize cache_size(const ExecutorOptions& options) const {
    return {options.context, block_, options.sequences, options.cache_memory};
  }

  // Room for `tokens` behind the sequence, which is the one that programs run from now on.
  void take(Sequence& sequence, int tokens, int back = 0) {
    reserve_room(cache(), sequence, tokens, back);
    c_.kv.show(sequence);
    c_.kv.show_state(sequence, tokens);
  }

  // What adapters add comes between steps that fusions join, so their tokens run step by step, each sequence's by
  // itself; the others take the same way as without.
  static bool adapted(const Sequence& sequence) { return !sequence.adapters().empty(); }

  // Can the fused programs decode here? Where memory is bounded, what a block's taps take is in the budget, and no
  // other's.
  bool can_fuse(bool tapped) const { return DecodeProgram::possible(c_) && !(tapped && budget_.bytes > 0); }

  // Is the item computed as a prompt is? Where tokens see those behind them, there is nothing else.
  bool in_block(const BatchItem& item) const { return item.phase == Phase::kPrefill || !c_.config.causal; }

  bool can_run_columns() const { return !tap_ && budget_.bytes == 0 && DecodeProgram::possible_for_columns(c_); }

  // Where the rows of each item go.
  void place_logits(std::span<const BatchItem> batch) {
    rows_ = kept_rows_ = 0;
    first_rows_.clear();
    size_t choices = 0;
    for (const BatchItem& item : batch) {
      const bool chooses = item.want == Logits::kBest;
      first_rows_.push_back(chooses ? choices++ : rows_);
      rows_ += item.want == Logits::kAll ? item.tokens.size() : item.want == Logits::kLast ? 1 : 0;
    }
    best_.assign(choices, 0);
    const size_t count = rows_ * static_cast<size_t>(width_);
    if (count > room_) {
      logits_ = std::make_unique_for_overwrite<float[]>(count);
      room_ = count;
    }
    kept_most_ = std::min(rows_, max_rows_of_logits(c_.config));
  }

  void run_item(std::span<const BatchItem> batch, size_t i) {
    const BatchItem& item = batch[i];
    const bool tapped = tap_ && i == 0;
    timeline::Span span;
    if (timeline::on()) span.begin(pass_name(item.phase, item.tokens.size(), 1, item.sequence->length()), "token");
    next_row_ = first_rows_[i];
    if (item.want == Logits::kBest) {
      best_[first_rows_[i]] = decode_ahead(*item.sequence, item.tokens[0], 1, {}, 0, false)[0];
      cache().append(*item.sequence, item.tokens, Phase::kDecode);
    } else if (in_block(item)) {
      run_prefill(item, tapped);
    } else if (item.tokens.size() > 1 && can_run_columns() && !adapted(*item.sequence)) {
      run_together(item);
    } else {
      run_decode(item, tapped);
    }
  }

  // Columns of one pass. Bindings hold what they need, their logits, too, if these are wanted.
  size_t max_columns(bool logits) const {
    uint64_t fit = DecodeProgram::max_columns(c_);
    const uint64_t row = static_cast<uint64_t>(width_) * sizeof(float);
    if (logits) fit = std::min(fit, std::max<uint64_t>(1, device_.capabilities().limits.max_binding_bytes / row));
    return static_cast<size_t>(std::min<uint64_t>(kMaxColumns, std::bit_floor(fit)));
  }

  // The only token of each of the items.
  void run_columns(std::span<const BatchItem> batch, std::span<const size_t> items, bool best) {
    timeline::Span span;
    if (timeline::on()) span.begin(pass_name(Phase::kDecode, items.size(), items.size(), 0), "token");
    std::vector<KvPool::Column> columns;
    for (const size_t i : items) {
      Sequence& sequence = *batch[i].sequence;
      reserve_room(cache(), sequence, 1);
      columns.push_back({&sequence, sequence.length(), batch[i].tokens[0]});
    }
    const bool wanted =
        best || std::any_of(items.begin(), items.end(), [&](size_t i) { return batch[i].want != Logits::kNone; });
    const uint32_t most = columns_like(columns.size());
    DecodeProgram& program = run_pass({most, most, best, false}, columns, 0, wanted ? columns.size() : 0);
    for (const size_t i : items) cache().append(*batch[i].sequence, batch[i].tokens, Phase::kDecode);
    if (best) {
      const auto chosen = gpu::read<int32_t>(device_, program.out_tokens(), items.size());
      for (size_t c = 0; c < items.size(); ++c) best_[first_rows_[items[c]]] = chosen[c];
      return;
    }
    // Neighbouring columns whose rows are neighbours, too, are read at once.
    for (size_t c = 0; c < items.size();) {
      if (batch[items[c]].want == Logits::kNone) {
        ++c;
        continue;
      }
      size_t end = c + 1;
      while (end < items.size() && batch[items[end]].want != Logits::kNone &&
             first_rows_[items[end]] == first_rows_[items[end - 1]] + 1) {
        ++end;
      }
      read_rows(program.logits(), c, first_rows_[items[c]], end - c);
      c = end;
    }
  }

  // The tokens of one item, each as if it came alone. All of them can be taken back.
  void run_together(const BatchItem& item) {
    Sequence& sequence = *item.sequence;
    // The cache has room for so many at once (KvPool).
    const size_t most =
        std::min(max_columns(item.want == Logits::kAll), static_cast<size_t>(std::max(block_, kMaxDecodeBatch)));
    for (std::span<const int32_t> left = item.tokens; !left.empty();) {
      const std::span<const int32_t> tokens = left.first(std::min(most, left.size()));
      const size_t before = item.tokens.size() - left.size();
      left = left.subspan(tokens.size());
      reserve_room(cache(), sequence, static_cast<int>(tokens.size()), static_cast<int>(before));
      std::vector<KvPool::Column> columns;
      for (const int32_t token : tokens) {
        columns.push_back({&sequence, sequence.length() + static_cast<int>(columns.size()), token});
      }
      const size_t rows = item.want == Logits::kAll                    ? tokens.size()
                          : item.want == Logits::kLast && left.empty() ? 1
                                                                       : 0;
      const uint32_t room = columns_like(tokens.size());
      DecodeProgram& program = run_pass({room, item.want == Logits::kAll ? room : 1, false, true}, columns,
                                        tokens.size() - std::max<size_t>(1, rows), rows);
      cache().append(sequence, tokens, Phase::kDecode);
      if (rows > 0) read_rows(program.logits(), 0, next_row_, rows);
      next_row_ += rows;
    }
  }

  // Rounded up to a power of two, so that few programs serve all.
  static uint32_t columns_like(size_t columns) { return std::bit_ceil(std::max(2u, static_cast<uint32_t>(columns))); }

  DecodeProgram& run_pass(const DecodeColumns& kind, std::span<const KvPool::Column> columns, size_t first_logits,
                          size_t logits) {
    begun_.reset();
    if (kind.most > c_.kv.column_room()) {
      column_programs_.clear();
      c_.kv.make_column_room(kind.most);
    }
    auto& program = column_programs_[kind];
    if (!program) program = std::make_unique<DecodeProgram>(c_, kind);
    c_.kv.show_columns(columns, first_logits, logits);
    device_.submit_in_parts(program->recording());
    return *program;
  }

  void run_prefill(const BatchItem& item, bool tapped) {
    const size_t most = item.want == Logits::kAll ? max_rows_of_logits(c_.config) : static_cast<size_t>(block_);
    for (std::span<const int32_t> tokens = item.tokens; !tokens.empty();) {
      const auto size = static_cast<int>(std::min(most, tokens.size()));
      const std::span<const int32_t> block =
          tokens.first(static_cast<size_t>(cache().piece_of_prompt(*item.sequence, size, kPieceWorthABlock)));
      tokens = tokens.subspan(block.size());
      const bool wanted = item.want == Logits::kAll || tokens.empty();
      take(*item.sequence, static_cast<int>(block.size()));
      run_block(*item.sequence, block, {static_cast<int>(block.size()), wanted ? item.want : Logits::kNone}, tapped);
      cache().append(*item.sequence, block, item.phase);
    }
  }

  // Token by token, so that each is computed as if it came alone. All of them can be taken back.
  void run_decode(const BatchItem& item, bool tapped) {
    const bool fused = can_fuse(tapped) && !adapted(*item.sequence);
    for (size_t i = 0; i < item.tokens.size(); ++i) {
      const std::span<const int32_t> token = item.tokens.subspan(i, 1);
      const bool wanted = item.want == Logits::kAll || (item.want == Logits::kLast && i + 1 == item.tokens.size());
      take(*item.sequence, 1, static_cast<int>(i));
      if (fused) {
        run_token(*item.sequence, token[0], wanted, tapped);
      } else {
        run_block(*item.sequence, token, {1, wanted ? Logits::kLast : Logits::kNone, Phase::kDecode}, tapped);
      }
      cache().append(*item.sequence, token, Phase::kDecode);
    }
  }

  void run_token(const Sequence& sequence, int32_t token, bool wanted, bool tapped) {
    if (tapped) {
      prepare_tapped_decode({});
    } else if (!one_token_) {
      one_token_ = std::make_unique<DecodeProgram>(c_, std::nullopt);
    }
    DecodeProgram& program = tapped ? *tapped_decode_ : *one_token_;
    set_state({static_cast<uint32_t>(sequence.length()), static_cast<uint32_t>(token)});
    device_.submit_in_parts(program.recording());
    if (tapped) program.taps().hand_over(1, sequence.length(), tap_);
    if (wanted) read_logits(program.logits(), 1);
  }

  static bool same(const std::optional<Sampling>& x, const std::optional<Sampling>& y) {
    if (!x || !y) return !x && !y;
    const Sampling &a = *x, &b = *y;
    return a.temperature == b.temperature && a.top_k == b.top_k && a.top_p == b.top_p && a.min_p == b.min_p &&
           a.repeat_penalty == b.repeat_penalty && a.seed == b.seed;
  }

  // Places the experts anew beside what taps take.
  void make_room(uint64_t tapped) {
    programs_.clear();
    tapped_program_.reset();
    decode_.reset();
    one_token_.reset();
    begun_.reset();
    if (pager_) {
      hits_before_ += pager_->hits();
      misses_before_ += pager_->misses();
    }
    pager_.reset();
    budget_.tapped = tapped;
    pager_ = place_experts(c_, weights_, budget_);
  }

  size_t max_rows_of_logits(const ModelConfig& config) const {
    if (!config.causal) return static_cast<size_t>(block_);
    const uint64_t row = static_cast<uint64_t>(width_) * sizeof(float);
    return std::clamp<size_t>(kAllLogitsBytes / row, 1, static_cast<size_t>(block_));
  }

  void submit(StepProgram& block) {
    if (pager_) return pager_->run(block);
    device_.submit(block.parts().front().recording);
  }

  void prepare_decode(const Sampling& sampling) {
    if (decode_ && same(decode_->sampling(), sampling)) return;
    begun_.reset();
    decode_.reset();
    decode_ = std::make_unique<DecodeProgram>(c_, sampling);
  }

  void prepare_tapped_decode(const std::optional<Sampling>& sampling) {
    if (tapped_decode_ && same(tapped_decode_->sampling(), sampling)) return;
    tapped_decode_.reset();
    tapped_decode_ = std::make_unique<DecodeProgram>(c_, sampling, &tapped_);
    kernels_.clear();
    add_kernels(tapped_decode_->recording(), kernels_);
    for (const FusedGroup& group : c_.groups) {
      const std::string text = kernels_[c_.step(group.steps.back()).name];
      for (const int s : group.steps) kernels_.try_emplace(c_.step(s).name, text);
    }
  }

  // The GPU is at the first tokens while the others are encoded.
  void submit_tokens(DecodeProgram& program, int done, int count) {
    if (done == 0 && count == 1) return device_.submit_in_parts(program.recording());
    while (done < count) {
      const int now = std::min(std::clamp(done, 1, kTokensASubmit), count - done);
      device_.submit(program.recording(), now);
      done += now;
    }
  }

  void ask_for_chosen(int count) {
    if (!chosen_) chosen_ = device_.create_buffer("chosen tokens, read", kMaxDecodeBatch * 4, BufferUse::kReadback);
    Recording copy(device_, "chosen tokens");
    copy.copy("choose", decode_->out_tokens(), static_cast<uint64_t>(produced_) * 4, chosen_, 0,
              static_cast<uint64_t>(count) * 4);
    device_.submit(copy);
    device_.begin_read(chosen_);
  }

  void set_state(const DecodeState& state) {
    c_.kv.set_state(state);
    produced_ = 0;
    begun_.reset();
  }

  void begin(DecodeProgram& program, const Sequence& sequence, int32_t token, uint64_t draw) {
    set_state({static_cast<uint32_t>(sequence.length()), static_cast<uint32_t>(token), static_cast<uint32_t>(draw)});
    program.set_text(sequence.tokens(), token);
  }

  StepProgram& program(const StepShape& shape) {
    auto& found = programs_[shape];
    if (!found) {
      if (pager_) programs_.clear();  // there is room for one
      auto fresh = std::make_unique<StepProgram>(c_, memory_, shape);
      if (programs_.size() > kMaxPrograms) programs_.clear();
      return *(programs_[shape] = std::move(fresh));
    }
    return *found;
  }

  void run_block(const Sequence& sequence, std::span<const int32_t> tokens, StepShape shape, bool tapped) {
    shape.adapters = sequence.adapters();
    gpu::write<int32_t>(device_, c_.tokens, tokens);
    c_.look_up(tokens);
    set_state({static_cast<uint32_t>(sequence.length()), static_cast<uint32_t>(tokens[0])});
    if (tapped) return run_tapped(sequence, shape);
    StepProgram& block = program(shape);
    submit(block);
    if (block.logit_rows() > 0) read_logits(block.logits(), block.logit_rows());
  }

  // Copies of the tapped values are made on the GPU inside the recording and read after the one submit.
  void run_tapped(const Sequence& sequence, const StepShape& shape) {
    if (!tapped_program_ || tapped_program_->shape() != shape) {
      tapped_program_.reset();
      if (budget_.bytes > 0) {
        programs_.clear();
        const uint64_t bytes = tapped_bytes(c_, tapped_, shape.tokens, shape.logit_rows());
        if (bytes > budget_.tapped) make_room(bytes);
      }
      tapped_program_ = std::make_unique<StepProgram>(c_, memory_, shape, &tapped_);
      kernels_.clear();
      for (const StepPart& part : tapped_program_->parts()) add_kernels(part.recording, kernels_);
    }
    StepProgram& block = *tapped_program_;
    submit(block);
    for (const Step& step : c_.plan.steps) {
      const Buffer output = block.tapped(step);
      if (!output) continue;
      const int rows = block.rows(step);
      const std::vector<float> values =
          gpu::read<float>(device_, output, static_cast<size_t>(rows) * static_cast<size_t>(c_.width(step.output)));
      tap_(step, values, rows, sequence.length() + shape.tokens - rows);
    }
    if (block.logit_rows() > 0) read_logits(block.logits(), block.logit_rows());
  }

  // The next rows of the item that runs. Those of many items are kept on the GPU and read together: it goes on with the
  // next while nobody waits.
  void read_logits(const Buffer& logits, int rows) {
    const auto count = static_cast<size_t>(rows);
    if (kept_rows_ > 0 && (next_row_ != kept_first_ + kept_rows_ || kept_rows_ + count > kept_most_)) read_kept();
    const size_t first = next_row_;
    next_row_ += count;
    if (count >= kept_most_ || budget_.bytes > 0) return read_rows(logits, 0, first, count);
    const uint64_t row = static_cast<uint64_t>(width_) * sizeof(float);
    if (!kept_ || kept_.size() < kept_most_ * row) {
      kept_ = {};
      kept_ = device_.create_buffer("logits of a batch", kept_most_ * row);
    }
    if (kept_rows_ == 0) kept_first_ = first;
    Recording copy(device_, "logits");
    copy.copy("logits", logits, 0, kept_, kept_rows_ * row, count * row);
    device_.submit(copy);
    kept_rows_ += count;
  }

  void read_kept() {
    if (kept_rows_ > 0) read_rows(kept_, 0, kept_first_, kept_rows_);
    kept_rows_ = 0;
  }

  // From row `from` of the buffer to row `to` of the batch's.
  void read_rows(const Buffer& logits, size_t from, size_t to, size_t rows) {
    const auto width = static_cast<size_t>(width_);
    device_.read(logits, from * width * sizeof(float),
                 std::as_writable_bytes(std::span(logits_.get() + to * width, rows * width)));
  }

  Device device_;
  const int block_, width_;  // tokens of a block; numbers of a row of what run() returns
  GpuBudget budget_;         // of no bytes: no bound
  const std::shared_ptr<const Adapters> adapters_;
  GpuContext c_;
  std::shared_ptr<ActivationBuffers> memory_;
  const Weights& weights_;                        // read after the upload only where there is a budget
  std::unique_ptr<ExpertPager> pager_;            // none where all experts are on the GPU
  uint64_t hits_before_ = 0, misses_before_ = 0;  // of pagers before this one
  std::map<StepShape, std::unique_ptr<StepProgram>> programs_;
  std::unique_ptr<DecodeProgram> decode_, one_token_;  // that choose the next token, and that leave the logits
  // The token after the last decode's, which the GPU has begun with.
  struct Begun {
    uint64_t sequence;
    int position;
    int32_t token;
    uint64_t draw;
  };
  std::optional<Begun> begun_;
  int produced_ = 0;  // tokens in out_tokens that the host knows of
  Buffer chosen_;
  std::map<DecodeColumns, std::unique_ptr<DecodeProgram>> column_programs_;
  std::unique_ptr<float[]> logits_;  // of the batch
  size_t rows_ = 0, room_ = 0;       // of it, and f32 that it has room for
  std::vector<size_t> first_rows_;   // by item; of those that choose, places of best_
  std::vector<int32_t> best_;
  size_t next_row_ = 0;  // of the item that runs
  Buffer kept_;          // rows of the batch's logits that are still to be read
  size_t kept_first_ = 0, kept_rows_ = 0, kept_most_ = 0;
  Tap tap_;
  TapSteps tapped_;
  std::unique_ptr<StepProgram> tapped_program_;
  std::unique_ptr<DecodeProgram> tapped_decode_;
  std::map<std::string, std::string> kernels_;  // by step, of the tapped program that ran last
};

}  // namespace

std::unique_ptr<Executor> make_gpu_executor(const ModelConfig& config, const Plan& plan, const Weights& weights,
                                            const ExecutorOptions& options) {
  return make_gpu_executor(config, plan, weights, options, GpuTuning{});
}

std::unique_ptr<Executor> make_gpu_executor(const ModelConfig& config, const Plan& plan, const Weights& weights,
                                            const ExecutorOptions& options, const GpuTuning& tuning) {
  return std::make_unique<GpuExecutor>(config, plan, weights, options, tuning);
}

}  // namespace doppler
