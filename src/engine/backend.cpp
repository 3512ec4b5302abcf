#include "engine/backend.h"

#include <fmt/format.h>

#include "base/error.h"
#include "cpu/cpu_executor.h"
#include "engine/machine.h"
#include "engine/missing_gpu.h"
#include "gpu/run/gpu_executor.h"
#include "gpu/webgpu/device.h"
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
                                        const ExecutorOptions& options) {
  const std::string chosen = choose_backend(backend, options.device).name;
  if (chosen == "webgpu") return make_gpu_executor(model.config, model.plan, model.weights, options);
  if (chosen == "ref") return make_ref_executor(model.config, model.plan, model.weights, options);
  return make_cpu_executor(model.config, model.plan, model.weights, options);
}

}  // namespace doppler
