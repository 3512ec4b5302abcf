// How often this program has asked for memory with new. For test programs that have allocations.cpp among their
// sources.
#pragma once

namespace doppler::testing {

long allocations();
long live_allocations();  // those not given back with delete

}  // namespace doppler::testing
