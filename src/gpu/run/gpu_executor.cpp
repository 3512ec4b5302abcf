#include "gpu/run/gpu_executor.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/error.h"
#include "gpu/run/decode_program.h"
#include "gpu/run/expert_pager.h"
#include "gpu/run/step_program.h"

namespace doppler {
namespace {

using namespace gpu;

constexpr int kBlock = 512;                        // tokens of a prefill block
constexpr uint64_t kAllLogitsBytes = 64ull << 20;  // logits of every token of a block, at most
constexpr int kProfiledTokens = 16;
constexpr int kTokensASubmit = 4;      // at most: longer ones take so long to encode that the GPU may run dry
constexpr int kBatchWorthGoingOn = 4;  // a slower device would lose more by a token that nobody wants than it gains
constexpr size_t kMaxPrograms = 8;     // recordings of block sizes kept

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

class GpuExecutor : public Executor {
 public:
  GpuExecutor(const ModelConfig& config, const Plan& plan, const Weights& weights, const ExecutorOptions& options)
      : device_({.adapter = options.device, .unchecked = !options.checked}),
        block_(std::max(1, std::min(options.block > 0 ? options.block : kBlock, options.context))),
        budget_{options.gpu_memory, static_cast<int>(max_rows_of_logits(config)), 0},
        c_(check_budget(device_, config, plan, weights, options.context, block_, budget_), config, plan, weights,
           options.context, block_, budget_.bytes > 0),
        memory_(std::make_shared<ActivationBuffers>(c_, share_buffers(c_.plan, single_steps(c_.plan)), block_)),
        weights_(weights) {
    if (budget_.bytes > 0) pager_ = place_experts(c_, weights_, budget_);
  }

  std::string_view name() const override { return "webgpu"; }
  int position() const override { return position_; }
  void reset() override { rewind(0); }
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
  DeviceCounters counters() const override {
    DeviceCounters counters{device_.submits(), device_.dispatches(), device_.allocated_bytes()};
    counters.expert_hits = hits_before_ + (pager_ ? pager_->hits() : 0);
    counters.expert_misses = misses_before_ + (pager_ ? pager_->misses() : 0);
    return counters;
  }
  size_t context_bytes() const override { return c_.cache_bytes(); }

  std::span<const float> forward(std::span<const int32_t> tokens, Logits want) override {
    check_tokens(c_.config, tokens, position_, c_.context);
    const size_t most = want == Logits::kAll ? max_rows_of_logits(c_.config) : static_cast<size_t>(block_);
    logits_.clear();
    while (!tokens.empty()) {
      const std::span<const int32_t> block = tokens.first(std::min(most, tokens.size()));
      tokens = tokens.subspan(block.size());
      const int count = static_cast<int>(block.size());
      run_block(block, want == Logits::kAll ? count : want == Logits::kLast && tokens.empty() ? 1 : 0);
    }
    return logits_;
  }

  std::vector<int32_t> decode(int32_t token, int count, const Sampling& sampling, uint64_t draw, bool more) override {
    count = std::min({count, kMaxDecodeBatch, c_.context - position_});
    if (count < 1 || !DecodeProgram::possible(c_)) return {};
    if (tap_ && budget_.bytes > 0) return {};  // what a block's taps take is in the budget
    if (tap_) return decode_tapped(token, count, sampling, draw);
    check_tokens(c_.config, std::span(&token, 1), position_, c_.context);
    prepare_decode(sampling);
    const bool begun = begun_ && begun_->position == position_ && begun_->token == token && begun_->draw == draw;
    if (!begun) begin(*decode_, token, draw);
    begun_.reset();
    submit_tokens(*decode_, begun ? 1 : 0, count);
    ask_for_chosen(count);
    position_ += count;
    produced_ += count;
    // And at the next one while these are read and looked at.
    const bool go_on = more && count >= kBatchWorthGoingOn && position_ < c_.context &&
                       produced_ + 1 + kMaxDecodeBatch <= DecodeProgram::kKeptTokens;
    if (go_on) device_.submit(decode_->recording());
    std::vector<int32_t> chosen(static_cast<size_t>(count));
    device_.end_read(chosen_, std::as_writable_bytes(std::span(chosen)));
    if (go_on) begun_ = Begun{position_, chosen.back(), draw + static_cast<uint64_t>(count)};
    add_text(token, chosen);
    return chosen;
  }

  // The same, with the values of tapped steps kept on the GPU for every token and read after the submit.
  std::vector<int32_t> decode_tapped(int32_t token, int count, const Sampling& sampling, uint64_t draw) {
    check_tokens(c_.config, std::span(&token, 1), position_, c_.context);
    if (!tapped_decode_ || !same(tapped_decode_->sampling(), sampling)) {
      tapped_decode_.reset();
      tapped_decode_ = std::make_unique<DecodeProgram>(c_, sampling, &tapped_);
      kernels_.clear();
      add_kernels(tapped_decode_->recording(), kernels_);
      for (const FusedGroup& group : c_.groups) {
        const std::string text = kernels_[c_.step(group.steps.back()).name];
        for (const int s : group.steps) kernels_.try_emplace(c_.step(s).name, text);
      }
    }
    count = std::min(count, tapped_decode_->taps().max_tokens());
    begin(*tapped_decode_, token, draw);
    submit_tokens(*tapped_decode_, 0, count);
    const auto chosen = gpu::read<int32_t>(device_, tapped_decode_->out_tokens(), static_cast<size_t>(count));
    const int first = position_;
    position_ += count;
    add_text(token, chosen);
    tapped_decode_->taps().hand_over(count, first, tap_);
    return chosen;
  }

  DecodeProfile profile(int32_t token) override {
    if (!device_.capabilities().timestamps || !DecodeProgram::possible(c_)) return {};
    check_tokens(c_.config, std::span(&token, 1), position_, c_.context);
    prepare_decode({});
    DecodeProfile profile;
    profile.batch = std::min(kProfiledTokens, c_.context - position_);
    set_state(token, 0);
    profile.gpu_ns = device_.time_ns(decode_->recording(), profile.batch) / profile.batch;
    set_state(token, 0);
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
    set_state(token, 0);
    for (StepTime& time : device_.profile(decode_->recording())) {
      profile.dispatches.push_back({std::move(time.step), time.begin_ns, time.end_ns});
    }
    ++position_;
    text_.push_back(token);
    return profile;
  }

  // A ring has room for a block beside its window, so the last tokens' slots still hold what they replaced.
  void rewind(int to) override {
    position_ = to;
    text_.resize(static_cast<size_t>(to));
  }

 private:
  static bool same(const Sampling& a, const Sampling& b) {
    return a.temperature == b.temperature && a.top_k == b.top_k && a.top_p == b.top_p && a.min_p == b.min_p &&
           a.repeat_penalty == b.repeat_penalty && a.seed == b.seed;
  }

  // Places the experts anew beside what taps take.
  void make_room(uint64_t tapped) {
    programs_.clear();
    tapped_program_.reset();
    decode_.reset();
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
    const uint64_t row = static_cast<uint64_t>(config.vocab) * sizeof(float);
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

  // The GPU is at the first tokens while the others are encoded.
  void submit_tokens(DecodeProgram& program, int done, int count) {
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

  void set_state(int32_t token, uint32_t draw) {
    const DecodeState state{static_cast<uint32_t>(position_), static_cast<uint32_t>(token), draw, 0};
    device_.write(c_.state, 0, std::as_bytes(std::span(&state, 1)));
    produced_ = 0;
    begun_.reset();
  }

  void begin(DecodeProgram& program, int32_t token, uint64_t draw) {
    set_state(token, static_cast<uint32_t>(draw));
    program.set_text(text_, token);
  }

  // A decode ran the token and what it chose but the last.
  void add_text(int32_t token, std::span<const int32_t> chosen) {
    text_.push_back(token);
    text_.insert(text_.end(), chosen.begin(), chosen.end() - 1);
  }

  StepProgram& program(int tokens, int logit_rows) {
    auto& found = programs_[{tokens, logit_rows}];
    if (!found) {
      if (pager_) programs_.clear();  // there is room for one
      auto fresh = std::make_unique<StepProgram>(c_, memory_, tokens, logit_rows);
      if (programs_.size() > kMaxPrograms) programs_.clear();
      return *(programs_[{tokens, logit_rows}] = std::move(fresh));
    }
    return *found;
  }

  void run_block(std::span<const int32_t> tokens, int logit_rows) {
    const int count = static_cast<int>(tokens.size());
    gpu::write<int32_t>(device_, c_.tokens, tokens);
    set_state(tokens[0], 0);
    if (tap_) {
      run_tapped(count, logit_rows);
    } else {
      StepProgram& block = program(count, logit_rows);
      submit(block);
      if (logit_rows > 0) read_logits(block);
    }
    position_ += count;
    text_.insert(text_.end(), tokens.begin(), tokens.end());
  }

  // Copies of the tapped values are made on the GPU inside the recording and read after the one submit.
  void run_tapped(int count, int logit_rows) {
    if (!tapped_program_ || tapped_program_->tokens() != count || tapped_program_->logit_rows() != logit_rows) {
      tapped_program_.reset();
      if (budget_.bytes > 0) {
        programs_.clear();
        const uint64_t bytes = tapped_bytes(c_, tapped_, count, logit_rows);
        if (bytes > budget_.tapped) make_room(bytes);
      }
      tapped_program_ = std::make_unique<StepProgram>(c_, memory_, count, logit_rows, &tapped_);
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
      tap_(step, values, rows, position_ + count - rows);
    }
    if (logit_rows > 0) read_logits(block);
  }

  void read_logits(const StepProgram& block) {
    const size_t size = static_cast<size_t>(block.logit_rows()) * static_cast<size_t>(c_.config.vocab);
    const size_t before = logits_.size();
    logits_.resize(before + size);
    device_.read(block.logits(), 0, std::as_writable_bytes(std::span(logits_).subspan(before)));
  }

  Device device_;
  const int block_;
  GpuBudget budget_;  // of no bytes: no bound
  GpuContext c_;
  std::shared_ptr<ActivationBuffers> memory_;
  const Weights& weights_;                        // read after the upload only where there is a budget
  std::unique_ptr<ExpertPager> pager_;            // none where all experts are on the GPU
  uint64_t hits_before_ = 0, misses_before_ = 0;  // of pagers before this one
  std::map<std::pair<int, int>, std::unique_ptr<StepProgram>> programs_;  // by tokens and logit rows
  std::unique_ptr<DecodeProgram> decode_;
  // The token after the last decode's, which the GPU has begun with.
  struct Begun {
    int position;
    int32_t token;
    uint64_t draw;
  };
  std::optional<Begun> begun_;
  int produced_ = 0;  // tokens in out_tokens that the host knows of
  Buffer chosen_;
  std::vector<float> logits_;
  Tap tap_;
  TapSteps tapped_;
  std::unique_ptr<StepProgram> tapped_program_;
  std::unique_ptr<DecodeProgram> tapped_decode_;
  std::map<std::string, std::string> kernels_;  // by step, of the tapped program that ran last
  int position_ = 0;
  std::vector<int32_t> text_;  // the tokens in the context
};

}  // namespace

std::unique_ptr<Executor> make_gpu_executor(const ModelConfig& config, const Plan& plan, const Weights& weights,
                                            const ExecutorOptions& options) {
  return std::make_unique<GpuExecutor>(config, plan, weights, options);
}

}  // namespace doppler
