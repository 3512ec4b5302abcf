// Pages of mapped files whose contents have been used up.
#pragma once

#include <cstddef>
#include <span>

namespace doppler {

// If `part` lies in the mapping of a live MappedFile, lets the system drop the whole pages inside it from memory; they
// stay readable. Does nothing to any other memory.
void drop_mapped_pages(std::span<const std::byte> part);

}  // namespace doppler
