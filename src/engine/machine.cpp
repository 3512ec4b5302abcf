#include "engine/machine.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

#include "base/threads.h"
#include "cpu/bandwidth.h"
#include "cpu/isa.h"
#include "gpu/ops/elementwise.h"
#include "gpu/webgpu/device.h"

namespace doppler {
namespace {

// The text after "name<blanks>:" in a file of such lines; empty if it is not there.
std::string field(const char* path, std::string_view name) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.compare(0, name.size(), name) != 0) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

}  // namespace

std::string cpu_name() { return field("/proc/cpuinfo", "model name"); }

CpuDescription describe_cpu() {
  constexpr std::string_view kAsked[] = {"fma",      "f16c",     "bmi2",     "avx2",       "avx512f",
                                         "avx512bw", "avx512dq", "avx512vl", "avx512vbmi", "avx512_vnni",
                                         "gfni",     "amx_tile", "amx_int8"};
  CpuDescription cpu{cpu_name(), available_cores(), {}, cpu::choose_kernels().name, {}};
  for (const cpu::Kernels* kernels : cpu::available_kernels()) cpu.sets.emplace_back(kernels->name);
  std::istringstream flags(field("/proc/cpuinfo", "flags"));
  for (std::string flag; flags >> flag;) {
    if (std::find(std::begin(kAsked), std::end(kAsked), flag) != std::end(kAsked)) cpu.features.push_back(flag);
  }
  return cpu;
}

uint64_t peak_resident_bytes() {
  return std::strtoull(field("/proc/self/status", "VmHWM").c_str(), nullptr, 10) * 1024;  // "123 kB"
}

uint64_t machine_memory() {
  return std::strtoull(field("/proc/meminfo", "MemTotal").c_str(), nullptr, 10) * 1024;  // "123 kB"
}

bool reset_peak_resident() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;  // proc(5): resets VmHWM
  return file.good();
}

std::string system_name() {
  utsname name{};
  if (uname(&name) != 0) return "unknown";
  return std::string(name.sysname) + " " + name.release + " " + name.machine;
}

std::optional<GpuDescription> describe_gpu(int device) {
  std::string why;
  if (!gpu::webgpu_available(&why)) return std::nullopt;
  const std::vector<gpu::AdapterInfo> adapters = gpu::list_adapters();
  const size_t index = device < 0 ? 0 : static_cast<size_t>(device);
  if (index >= adapters.size()) return std::nullopt;
  const gpu::AdapterInfo& info = adapters[index];
  GpuDescription gpu{info.name, info.vendor, info.architecture, info.description, info.backend, {}};
  const gpu::Capabilities& c = info.capabilities;
  for (const auto& [has, name] :
       {std::pair(c.subgroups, "subgroups"), std::pair(c.f16, "f16"), std::pair(c.subgroup_matrix, "subgroup matrix"),
        std::pair(c.int8_dot, "int8 dot"), std::pair(c.timestamps, "timestamps"), std::pair(c.software, "software")}) {
    if (has) gpu.features.emplace_back(name);
  }
  return gpu;
}

double device_bandwidth(int device) { return gpu::measure_copy_bandwidth(device); }

double read_bandwidth(int threads, size_t bytes) {
  ThreadPool pool(threads);
  return measure_read_bandwidth(pool, bytes) * 1e9;
}

}  // namespace doppler
