#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/threads.h"
#include "base/version.h"
#include "cli/doctor.h"
#include "cli/open_model.h"
#include "convert/synth.h"
#include "cpu/cases/step_cases.h"
#include "engine/backend.h"
#include "engine/missing_gpu.h"
#include "gpu/webgpu/device.h"
#include "model/cost.h"

namespace doppler::doctor {
namespace {

constexpr const char* kPrompt = "The color of the sky is";

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::string first_word(const char* path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

// "always [madvise] never": the one in brackets.
std::string chosen_word(const char* path) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    if (word.size() > 2 && word.front() == '[') return word.substr(1, word.size() - 2);
  }
  return "";
}

SelfTest check_cpu(const cpu::Kernels& kernels) {
  const Stopwatch watch;
  SelfTest test{.what = fmt::format("CPU kernels, {}", kernels.name)};
  for (const cpu::StepCase& c : cpu::step_cases(kernels, false)) {
    for (const cpu::StepResult& r : cpu::check_steps(c)) {
      ++test.checks;
      if (r.pass()) {
        test.worst = std::max(test.worst, r.error / r.bound);
      } else if (++test.failed; test.failures.size() < kFailuresKept) {
        test.failures.push_back(fmt::format("{} of {} weights, {} tokens a pass: relative error {:.2g}, bound {:.2g}",
                                            r.operation, name_of(c.type), c.block, r.error, r.bound));
      }
    }
  }
  test.all = test.checks;
  test.seconds = watch.seconds();
  return test;
}

int32_t likeliest(const LoadedModel& model, const std::string& backend, int device, std::span<const int32_t> tokens) {
  const auto executor = make_executor(model, backend, {.context = 64, .device = device}, true);
  Context context(*executor);
  const std::span<const float> logits = context.forward(tokens, Logits::kLast);
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// The model that ships: its bytes, and what comes next, on every backend.
SelfTest check_model(const Examination& e) {
  const Stopwatch watch;
  SelfTest test{.what = "the model that ships with Doppler"};
  std::filesystem::path path;
  try {
    path = default_model();
  } catch (const Failure&) {
    return test;  // it is not installed here
  }
  try {
    const LoadedModel model = LoadedModel::load(path);
    const std::vector<int32_t> tokens = model.need_tokenizer().encode(kPrompt, true);
    const int32_t expected = likeliest(model, "ref", 0, tokens);
    std::vector<std::string> backends{"cpu"};
    if (e.adapter() && e.device_why.empty()) backends.push_back("webgpu");
    for (const std::string& backend : backends) {
      ++test.checks;
      const int32_t got = likeliest(model, backend, e.device, tokens);
      if (got == expected) continue;
      ++test.failed;
      test.failures.push_back(
          fmt::format("after '{}' {} has token {}, and the reference {}", kPrompt, backend, got, expected));
    }
  } catch (const Failure& failure) {
    test.checks = std::max(test.checks, 1);
    ++test.failed;
    test.failures.push_back(failure.what());
  }
  test.all = test.checks;
  test.seconds = watch.seconds();
  return test;
}

std::vector<ModelFit> published_models() {
  std::vector<ModelFit> models;
  for (const Preset& preset : presets()) {
    const SizedModel sized = sized_model(preset, recipe_named("q4_k_m"));
    ModelFit fit{.name = preset.name, .context = default_context(sized.config)};
    const Plan plan = build_plan(sized.config);
    for (const auto& [slot, tensor] : sized.weights.all())
      if (!stays_in_file(plan, slot))
        fit.weight_bytes += static_cast<double>(tensor.rows()) * static_cast<double>(tensor.stride());
    fit.cache_bytes = static_cast<double>(kv_cache_bytes(sized.config, fit.context));
    fit.token_bytes = decode_cost(plan, sized.weights, 0).bytes();
    models.push_back(fit);
  }
  std::sort(models.begin(), models.end(), [](const ModelFit& a, const ModelFit& b) { return a.bytes() < b.bytes(); });
  return models;
}

void examine_gpu([[maybe_unused]] const Options& options, Examination& e) {
#if defined(DOPPLER_NO_GPU)
  e.gpu_built = false;
#else
  e.library = gpu::webgpu_library_path();
  if (e.library.empty()) gpu::webgpu_library_found(&e.library_why);
  e.device = std::max(options.device, 0);
  if (!e.library.empty()) {
    try {
      e.adapters = gpu::list_adapters();
    } catch (const Failure& failure) {
      e.device_why = failure.what();
    }
  }
  const gpu::AdapterInfo* adapter = e.adapter();
  if (!adapter || adapter->capabilities.software) e.missing_gpu = explain_missing_gpu(gpu_situation());
  if (!adapter && options.device >= 0 && !e.adapters.empty()) {
    fail({.code = ErrorCode::kUsage,
          .what = "there is no such GPU",
          .where = "--device",
          .expected = fmt::format("0 to {}", e.adapters.size() - 1),
          .got = std::to_string(options.device),
          .todo = "doppler devices lists them"});
  }
  if (!adapter) return;
  try {
    e.copy_bandwidth = device_bandwidth(e.device);
    examine_gpu_kernels(options, e);
  } catch (const Failure& failure) {
    e.device_why = failure.what();
  }
#endif
}

}  // namespace

Examination examine(const Options& options) {
  Examination e;
  e.version = kVersion;
  e.system = system_name();
  e.cpu = describe_cpu();
  e.governor = first_word("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  e.load = std::atof(first_word("/proc/loadavg").c_str());
  e.memory = machine_memory();
  e.available = available_memory();
  e.large_pages = chosen_word("/sys/kernel/mm/transparent_hugepage/enabled");
  // As much as no cache holds, where there is room for it.
  e.read_bandwidth = read_bandwidth(0, std::min<size_t>(size_t{1} << 30, e.available / 4));
  for (const cpu::Kernels* kernels : cpu::available_kernels()) e.tests.push_back(check_cpu(*kernels));
  examine_gpu(options, e);
  e.tests.push_back(check_model(e));
  e.models = published_models();
  return e;
}

}  // namespace doppler::doctor
