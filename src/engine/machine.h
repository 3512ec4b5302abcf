// What the machine under us is and can do; figures are judged against it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace doppler {

std::string cpu_name();

struct CpuDescription {
  std::string name;
  int cores = 0;                      // that this process may use at once
  std::vector<std::string> sets;      // of kernels that it can run, the slowest first
  std::string used;                   // the one that runs
  std::vector<std::string> features;  // instructions that kernels ask for, as the system calls them
};
CpuDescription describe_cpu();

uint64_t peak_resident_bytes();  // of this process so far; 0 where the system does not say
uint64_t machine_memory();       // bytes; 0 where the system does not say
bool reset_peak_resident();      // counts it from now on; false where the system does not let us

std::string system_name();  // "Linux 6.1.0 x86_64"

struct GpuDescription {
  std::string name, vendor, architecture, driver, backend;
  std::vector<std::string> features;
};
// The GPU that `device` means; none where there is no WebGPU.
std::optional<GpuDescription> describe_gpu(int device);

// Bytes per second that GPU moves in a large copy (reads and writes together), measured now.
double device_bandwidth(int device);

// Bytes per second `threads` threads (0: all cores) read from `bytes` bytes over and over, measured now (about a
// second).
double read_bandwidth(int threads, size_t bytes);

}  // namespace doppler
