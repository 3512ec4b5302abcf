#include <fmt/format.h>

#include <algorithm>

#include "cli/doctor.h"

namespace doppler::doctor {
namespace {

void judge_tests(const Examination& e, std::vector<Finding>& out) {
  for (const SelfTest& test : e.tests) {
    if (test.failed == 0) continue;
    std::string text = fmt::format("{}: {} of {} checks failed", test.what, test.failed, test.checks);
    if (!test.failures.empty()) text += "; the first: " + test.failures.front();
    const bool gpu = test.what.starts_with("GPU");
    out.push_back({Level::kFault, text,
                   gpu ? "Use --backend cpu, try a newer driver, and report this page"
                       : "Report this page; memory that fails can be the cause, too"});
  }
}

void judge_cpu(const Examination& e, std::vector<Finding>& out) {
  if (!e.cpu.sets.empty() && e.cpu.used != e.cpu.sets.back()) {
    out.push_back({Level::kSlow,
                   fmt::format("DOPPLER_CPU asks for {} kernels, and this CPU has {}", e.cpu.used, e.cpu.sets.back()),
                   "Unset DOPPLER_CPU"});
  } else if (e.cpu.used == "portable") {
    out.push_back({Level::kSlow,
                   "this CPU has no AVX2 (with FMA, F16C and BMI2), so the portable kernels run, several times slower",
                   "In a virtual machine, pass the host's CPU through"});
  }
  if (e.governor == "powersave" || e.governor == "conservative") {
    out.push_back({Level::kSlow, fmt::format("the cores' clock is governed by '{}'", e.governor),
                   "Where decoding is slower than it should be: cpupower frequency-set -g performance"});
  }
  // What others run takes cores from every step, which ends when its last thread does.
  if (e.load > 0.5 * e.cpu.cores) {
    out.push_back({Level::kSlow, fmt::format("other programs keep {:.1f} of {} cores busy", e.load, e.cpu.cores),
                   "Stop them, or give Doppler fewer --threads than there are cores"});
  }
  if (e.large_pages == "never") {
    out.push_back({Level::kSlow, "the system gives no large pages, which long reads of memory are faster with",
                   "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"});
  }
  if (e.memory > 0 && e.available < e.memory / 4) {
    out.push_back({Level::kSlow,
                   fmt::format("{:.1f} of {:.1f} GiB of memory are free", static_cast<double>(e.available) / (1 << 30),
                               static_cast<double>(e.memory) / (1 << 30)),
                   "What does not fit is read from the disk for every token: close other programs"});
  }
}

void judge_gpu(const Examination& e, std::vector<Finding>& out) {
  if (!e.gpu_built) {
    out.push_back({Level::kNote, "this Doppler was built without the WebGPU backend: the CPU runs everything",
                   "Build with -DDOPPLER_GPU=ON to use a GPU"});
    return;
  }
  if (e.library.empty()) {
    out.push_back({Level::kNote, "no WebGPU library could be loaded, so the CPU runs everything: " + e.library_why,
                   "Run tools/setup.sh dawn, or set DOPPLER_DAWN to the library's path"});
  }
  const gpu::AdapterInfo* adapter = e.adapter();
  if (adapter && !e.device_why.empty())
    out.push_back({Level::kFault, "the GPU could not be used: " + e.device_why, "Use --backend cpu"});
  if (!adapter || adapter->capabilities.software) {
    if (!e.missing_gpu.empty()) {
      const bool there = e.missing_gpu.find("left out") != std::string::npos;
      out.push_back({there ? Level::kSlow : Level::kNote, e.missing_gpu, ""});
    }
    if (adapter)
      out.push_back(
          {Level::kNote,
           fmt::format("{} is a GPU made of software, for trying; without --backend webgpu the CPU's own kernels run",
                       adapter->name),
           ""});
    return;
  }
  const gpu::Capabilities& c = adapter->capabilities;
  const auto lacks = [&](bool there, const char* what, const char* costs) {
    if (!there)
      out.push_back(
          {Level::kSlow, fmt::format("{} has no {}: {}", adapter->name, what, costs), "A newer driver may have it"});
  };
  lacks(c.subgroup_size > 0 || c.subgroups, "subgroups", "sums go through workgroup memory");
  lacks(c.int8_dot, "packed int8 dot products", "quantised weights are multiplied as floats");
  lacks(c.f16, "f16 in shaders", "prompts are multiplied in f32");
}

}  // namespace

std::vector<Finding> findings(const Examination& e) {
  std::vector<Finding> out;
  judge_tests(e, out);
  judge_cpu(e, out);
  judge_gpu(e, out);
  std::stable_sort(out.begin(), out.end(), [](const Finding& a, const Finding& b) { return a.level > b.level; });
  return out;
}

bool healthy(const std::vector<Finding>& list) {
  return std::none_of(list.begin(), list.end(), [](const Finding& f) { return f.level == Level::kFault; });
}

}  // namespace doppler::doctor
