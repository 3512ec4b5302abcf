// What `doppler doctor` found, as data: gathered in doctor_examine.cpp, judged in doctor_findings.cpp, printed in
// doctor.cpp.
#pragma once

#include <string>
#include <vector>

#include "engine/machine.h"
#include "gpu/webgpu/capabilities.h"

namespace doppler::doctor {

inline constexpr size_t kFailuresKept = 5;

// Checks of one thing against the truth.
struct SelfTest {
  std::string what;  // "CPU kernels, avx2"
  int checks = 0, failed = 0;
  int all = 0;       // that there are; the others were left out, for the time they take
  double worst = 0;  // error in units of its bound, of those that passed
  double seconds = 0;
  std::vector<std::string> failures = {};  // the first kFailuresKept, in words
};

// A published model in the usual quantisation, by its architecture alone.
struct ModelFit {
  std::string name;
  double weight_bytes = 0, cache_bytes = 0;  // keys and values of `context` tokens
  double token_bytes = 0;                    // read for a decoded token
  int context = 0;
  double bytes() const { return weight_bytes + cache_bytes; }
};

struct Examination {
  std::string version, system;
  CpuDescription cpu;
  std::string governor;                // of the cores' clock; empty where the system does not say
  double load = 0;                     // programs that wanted a core in the last minute, on average
  uint64_t memory = 0, available = 0;  // bytes
  std::string large_pages;             // "always", "madvise", "never", or empty
  double read_bandwidth = 0;           // bytes per second

  bool gpu_built = true;
  std::string library, library_why;  // the WebGPU library that was loaded; or why none was
  std::string missing_gpu;           // what stands between WebGPU and a GPU; empty where nothing does
  std::vector<gpu::AdapterInfo> adapters;
  int device = 0;             // the one that was looked into
  std::string device_why;     // it could not be opened: why
  double copy_bandwidth = 0;  // of that GPU, bytes per second; 0 where there is none

  std::vector<SelfTest> tests;
  std::vector<ModelFit> models;

  const gpu::AdapterInfo* adapter() const {
    return static_cast<size_t>(device) < adapters.size() ? &adapters[static_cast<size_t>(device)] : nullptr;
  }
};

struct Options {
  int device = -1;    // which GPU; -1: the first
  bool full = false;  // every case of a GPU's kernels, however long they take
};
Examination examine(const Options& options);

#if !defined(DOPPLER_NO_GPU)
void examine_gpu_kernels(const Options& options, Examination& e);
#endif

enum class Level : uint8_t { kNote, kSlow, kFault };
struct Finding {
  Level level;
  std::string text, todo;  // what is, and what to do about it (or empty)
};
// The faults first, then what makes things slow.
std::vector<Finding> findings(const Examination& e);
bool healthy(const std::vector<Finding>& list);

}  // namespace doppler::doctor
