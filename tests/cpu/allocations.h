// How often this program has asked for memory with new.
#pragma once

namespace doppler::testing {

long allocations();

}  // namespace doppler::testing
