#include "engine/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "base/error.h"
#include "base/timeline.h"
#include "cpu/cpu_executor.h"
#include "cpu/memory.h"
#include "debug/report.h"
#include "engine/machine.h"
#include "engine/missing_gpu.h"
#include "engine/ranks.h"
#include "engine/shard_check.h"
#include "gpu/run/gpu_executor.h"
#include "gpu/webgpu/device.h"
#include "model/cost.h"
#include "ref/ref_executor.h"

namespace doppler {
namespace {

BackendChoice automatic(int device) {
  std::string why;
  if (gpu::webgpu_available(&why)) {
    const std::vector<gpu::AdapterInfo> adapters = gpu::list_adapters();
    const size_t index = device < 0 ? 0 : static_cast<size_t>(device);
    if (index < adapters.size() && !adapters[index].capabilities.software) return {"webgpu", adapters[index].name};
  }
  return {"cpu", fmt::format("{}; {}", cpu_name(), explain_missing_gpu(gpu_situation()))};
}

}  // namespace

BackendChoice choose_backend(const std::string& asked, int device) {
  if (asked == "auto") return automatic(device);
  if (asked == "cpu") return {"cpu", cpu_name()};
  if (asked == "ref") return {"ref", "the reference operations, slow"};
  if (asked == "webgpu") {
    const std::vector<gpu::AdapterInfo> adapters = gpu::list_adapters();
    const size_t index = device < 0 ? 0 : static_cast<size_t>(device);
    return {"webgpu", index < adapters.size() ? adapters[index].name : ""};
  }
  fail({.code = ErrorCode::kUsage,
        .what = "an unknown backend",
        .where = "--backend",
        .expected = "auto, webgpu, cpu or ref",
        .got = asked});
}

std::unique_ptr<Executor> make_executor(const LoadedModel& model, const std::string& backend,
                                        const ExecutorOptions& options, bool verify) {
  if (several_ranks() && !options.alone) {
    if (!options.kernels.empty()) {
      fail({.code = ErrorCode::kUsage,
            .what = "kernels are chosen by hand where one process runs the model",
            .where = "--kernel",
            .todo = "Leave --kernel or mpirun out"});
    }
    return make_ranks_executor(model, backend, options);
  }
  std::optional<ShardCheck> check;
  if (verify && model.artefact) check.emplace(*model.artefact, hash_record_path());
  const std::string chosen = choose_backend(backend, options.device).name;
  timeline::Span span;
  if (timeline::on()) span.begin("prepare " + chosen, "load");
  const Weights& weights = chosen == "webgpu" && model.gpu_weights ? *model.gpu_weights : model.weights;
  std::unique_ptr<Executor> executor = make_local_executor(chosen, model.config, model.plan, weights, options);
  executor->set_model({&model.config, &model.plan, &model.weights, options.adapters});
  if (check) check->finish();
  return executor;
}

std::unique_ptr<Executor> make_local_executor(const std::string& backend, const ModelConfig& config, const Plan& plan,
                                              const Weights& weights, const ExecutorOptions& options) {
  if (backend == "webgpu") return make_gpu_executor(config, plan, weights, options);
  if (backend == "ref") {
    check_kernel_wishes(options.kernels, {}, backend);
    return make_ref_executor(config, plan, weights, options);
  }
  return make_cpu_executor(config, plan, weights, options);
}

void trace_steps(Executor& executor, const LoadedModel& model) {
  TapSteps steps = traced_steps(model.plan);
  if (!steps.empty()) executor.set_tap_at(trace_tap(), std::move(steps));
}

void trace_steps(Executor& executor, const LoadedModel& model, const Tap& also, const TapSteps& steps) {
  const TapSteps traced = traced_steps(model.plan);
  TapSteps both = steps;
  both.insert(traced.begin(), traced.end());
  executor.set_tap_at(
      [also, steps, traced, lines = trace_tap()](const Step& step, std::span<const float> data, int tokens,
                                                 int position) {
        if (traced.count(step.name) > 0) lines(step, data, tokens, position);
        if (steps.count(step.name) > 0) also(step, data, tokens, position);
      },
      std::move(both));
}

uint64_t available_memory() {
  uint64_t least = cpu::available_memory();
  // A container's bound (cgroup v2): a number, or "max".
  uint64_t most = 0, now = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> most && std::ifstream("/sys/fs/cgroup/memory.current") >> now)
    least = std::min(least, most > now ? most - now : 0);
  return least;
}

uint64_t gpu_buffer_bytes() { return gpu::live_buffer_bytes(); }

uint64_t default_cache_memory(const LoadedModel& model, const BackendChoice& backend, int context, int sequences,
                              uint64_t available) {
  if (backend.name != "cpu") return 0;
  const uint64_t one = kv_cache_bytes(model.config, context);
  const uint64_t left = available > model.artefact_bytes ? available - model.artefact_bytes : 0;
  const uint64_t bytes = std::min(one * static_cast<uint64_t>(sequences), left / 2);
  return bytes > 8 * one ? bytes : 0;  // windows take up to twice what they show: below that a context might not fit
}

}  // namespace doppler
