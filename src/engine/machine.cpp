#include "engine/machine.h"

#include <cstdlib>
#include <fstream>
#include <string_view>

#include "base/threads.h"
#include "cpu/bandwidth.h"

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

uint64_t peak_resident_bytes() {
  return std::strtoull(field("/proc/self/status", "VmHWM").c_str(), nullptr, 10) * 1024;  // "123 kB"
}

double read_bandwidth(int threads) {
  ThreadPool pool(threads);
  return measure_read_bandwidth(pool) * 1e9;
}

}  // namespace doppler
