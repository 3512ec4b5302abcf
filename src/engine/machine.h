// What the machine under us is and can do; figures are judged against it.
#pragma once

#include <cstdint>
#include <string>

namespace doppler {

std::string cpu_name();
uint64_t peak_resident_bytes();  // of this process so far; 0 where the system does not say

// Bytes a second `threads` threads (0: all cores) read from memory, measured now (about a second).
double read_bandwidth(int threads);

}  // namespace doppler
