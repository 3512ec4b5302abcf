#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "bench/surface.h"
#include "debug/stages.h"
#include "engine/backend.h"
#include "engine/decode_pace.h"
#include "engine/machine.h"
#include "engine/perplexity.h"

namespace doppler {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Asks the system to forget what it holds of the artefact's files, so that the next load reads them.
void drop_cached(const std::filesystem::path& folder) {
  std::error_code ec;
  for (const auto& item : std::filesystem::directory_iterator(folder, ec)) {
    const int fd = ::open(item.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

class NativeSurface : public BenchSurface {
 public:
  NativeSurface(const std::filesystem::path& path, const InferenceWorkload& workload, int context, const Told& progress)
      : workload_(workload), context_(context), pace_(workload.decode_batch) {
    progress("loading, cold");
    drop_cached(path);
    facts_.cold_load_ms = load(path);
    executor_.reset();
    model_.reset();
    progress("loading, warm");
    facts_.warm_load_ms = load(path);
    facts_.backend = executor_->name();
    facts_.kv_bytes = executor_->context_bytes();
    if (facts_.backend != "webgpu") return;
    if (const auto gpu = describe_gpu(workload_.device)) {
      facts_.gpu = {{"name", gpu->name},     {"vendor", gpu->vendor},   {"architecture", gpu->architecture},
                    {"driver", gpu->driver}, {"backend", gpu->backend}, {"features", gpu->features}};
    }
  }

  const LoadedModel& model() const override { return *model_; }
  const Facts& facts() const override { return facts_; }

  Run run(std::span<const int32_t> prompt, int32_t first, int tokens) override {
    Run run;
    executor_->reset();
    int32_t token = first;
    if (!prompt.empty()) {
      const auto start = Clock::now();
      token = argmax(executor_->forward(prompt, Logits::kLast));
      run.first_token_ms = ms_since(start);
    }
    const DeviceCounters before = executor_->counters();
    while (static_cast<int>(run.token_ms.size()) < tokens) {
      const int left = tokens - static_cast<int>(run.token_ms.size()), wanted = std::min(pace_.batch(), left);
      const auto start = Clock::now();
      run.text.push_back(token);
      std::vector<int32_t> chosen = executor_->decode(token, wanted, {}, run.token_ms.size(), left > wanted);
      if (chosen.empty()) chosen.push_back(argmax(executor_->forward(std::span(&token, 1), Logits::kLast)));
      token = chosen.back();
      const double took = ms_since(start);
      pace_.took(static_cast<int>(chosen.size()), took);
      run.token_ms.insert(run.token_ms.end(), chosen.size(), took / static_cast<double>(chosen.size()));
      run.text.insert(run.text.end(), chosen.begin(), chosen.end() - 1);
    }
    const DeviceCounters after = executor_->counters();
    run.spent = {after.submits - before.submits, after.dispatches - before.dispatches, after.bytes,
                 after.expert_hits - before.expert_hits, after.expert_misses - before.expert_misses};
    return run;
  }

  std::vector<Opinion> opinions(std::span<const int32_t> tokens) override {
    executor_->reset();
    const std::span<const float> logits = executor_->forward(tokens.first(tokens.size() - 1), Logits::kAll);
    const auto vocab = static_cast<size_t>(model_->config.vocab);
    std::vector<Opinion> list;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const std::span<const float> row = logits.subspan(i * vocab, vocab);
      list.push_back({argmax(row), surprise(row, tokens[i + 1])});
    }
    return list;
  }

  uint64_t peak_host_bytes() override { return std::max(peak_, peak_known_ ? peak_resident_bytes() : 0); }
  double bandwidth(double bytes) override {
    peak_ = peak_host_bytes();  // without the memory that measuring takes
    const double rate = facts_.backend == "webgpu" ? device_bandwidth(workload_.device)
                                                   : read_bandwidth(workload_.threads, static_cast<size_t>(bytes));
    peak_known_ = peak_known_ && forget_peak_resident();
    return rate;
  }

 private:
  double load(const std::filesystem::path& path) {
    const auto start = Clock::now();
    model_ = std::make_unique<LoadedModel>(workload_.load(path));
    executor_ = make_executor(*model_, workload_.backend,
                              {context_, workload_.threads, 0, workload_.device, false, workload_.gpu_memory});
    const double ms = ms_since(start);
    if (!workload_.tapped_layers.empty()) {
      // Somebody looks: the copies are made and read, the numbers go nowhere.
      const auto ignore = [](const Step&, std::span<const float>, int, int) {};
      executor_->set_tap_at(ignore, steps_of_layers(model_->plan, workload_.tapped_layers));
    }
    return ms;
  }

  const InferenceWorkload workload_;
  const int context_;
  Facts facts_;
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<Executor> executor_;
  DecodePace pace_;
  uint64_t peak_ = 0;       // until bandwidth was measured last
  bool peak_known_ = true;  // since then
};

}  // namespace

std::unique_ptr<BenchSurface> native_surface(const std::filesystem::path& model, const InferenceWorkload& workload,
                                             int context, const Told& progress) {
  return std::make_unique<NativeSurface>(model, workload, context, progress);
}

}  // namespace doppler
