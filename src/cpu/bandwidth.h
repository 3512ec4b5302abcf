// What the machine's memory gives: the limit that decode is held against.
#pragma once

#include "base/threads.h"

namespace doppler {

// GB/s (10^9) that all threads of the pool read together from a buffer far larger than the caches: the median of
// several passes.
double measure_read_bandwidth(ThreadPool& pool);

}  // namespace doppler
