#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "bench/surface.h"
#include "debug/stages.h"
#include "engine/backend.h"
#include "engine/machine.h"

namespace doppler {
namespace {

using Clock = std::chrono::steady_clock;
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
  NativeSurface(const std::filesystem::path& path, const InferenceWorkload& workload, int context,
                const OnStatus& progress)
      : workload_(workload), context_(context), pace_(workload.decode_batch) {
    progress("loading, cold");
    drop_cached(path);
    facts_.cold_load_ms = load(path);
    executor_.reset();
    model_.reset();
    progress("loading, warm");
    facts_.warm_load_ms = load(path);
    for (const std::string& note : model_->notes) progress(note);
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

  GreedyRun run(std::span<const int32_t> prompt, int32_t first, int tokens) override {
    return run_greedy(*executor_, prompt, first, tokens, pace_);
  }
  std::vector<TokenScore> score(std::span<const int32_t> tokens) override {
    return score_tokens(*executor_, tokens, tokens.size());
  }

  uint64_t peak_host_bytes() override { return std::max(peak_, peak_known_ ? peak_resident_bytes() : 0); }
  double bandwidth(double bytes) override {
    peak_ = peak_host_bytes();  // without the memory that measuring takes
    const double rate = facts_.backend == "webgpu" ? device_bandwidth(workload_.device)
                                                   : read_bandwidth(workload_.threads, static_cast<size_t>(bytes));
    peak_known_ = peak_known_ && reset_peak_resident();
    return rate;
  }

 private:
  double load(const std::filesystem::path& path) {
    const auto start = Clock::now();
    model_ = std::make_unique<LoadedModel>(LoadedModel::load(path));
    model_->need_text();
    executor_ = make_executor(*model_, workload_.backend,
                              {.context = context_,
                               .threads = workload_.threads,
                               .device = workload_.device,
                               .gpu_memory = workload_.gpu_memory,
                               .adapters = load_adapters(*model_, workload_.adapters),
                               .kernels = parse_kernel_wishes(workload_.kernels)});
    const double ms = ms_since(start);
    trace_steps(*executor_, *model_);
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
                                             int context, const OnStatus& progress) {
  return std::make_unique<NativeSurface>(model, workload, context, progress);
}

}  // namespace doppler
