// In place of all else here where Doppler is built with -DDOPPLER_GPU=OFF: there is no GPU, and whoever asks for one is
// told why.
#include "base/error.h"
#include "gpu/ops/elementwise.h"
#include "gpu/run/gpu_executor.h"
#include "gpu/webgpu/device.h"

namespace doppler {
namespace {

constexpr const char* kWhy = "this Doppler was built without the WebGPU backend";

[[noreturn]] void refuse() {
  fail({.code = ErrorCode::kDevice, .what = kWhy, .todo = "Use the CPU, or build with -DDOPPLER_GPU=ON"});
}

}  // namespace

namespace gpu {

bool webgpu_available(std::string* why) {
  if (why != nullptr) *why = kWhy;
  return false;
}

bool webgpu_library_found(std::string* why) { return webgpu_available(why); }

std::string webgpu_library_path() { return ""; }

std::vector<AdapterInfo> list_adapters() { refuse(); }

double measure_copy_bandwidth(int) { refuse(); }

uint64_t live_buffer_bytes() { return 0; }

}  // namespace gpu

std::unique_ptr<Executor> make_gpu_executor(const ModelConfig&, const Plan&, const Weights&, const ExecutorOptions&) {
  refuse();
}

}  // namespace doppler
