// What the machine's memory gives: the limit that decode is held against.
#pragma once

#include "base/threads.h"

namespace doppler {

// GB/s (10^9) that all threads of the pool read together from `bytes` bytes, over and over as decode reads its weights:
// what of those stays in a cache from one token to the next does so here. The median of several passes. More than a
// GiB is measured as a GiB.
double measure_read_bandwidth(ThreadPool& pool, size_t bytes);

}  // namespace doppler
