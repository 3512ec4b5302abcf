// Pages of mapped files whose contents have been used up.
#pragma once

#include <cstddef>
#include <span>

namespace doppler {

// If `part` lies in a known mapping of files, lets the system drop the whole pages inside it from memory; they stay
// readable. Does nothing to any other memory.
void drop_mapped_pages(std::span<const std::byte> part);

// Every MappedFile is known; who maps files in another way says so, and takes it back before unmapping them.
void know_mapped_pages(std::span<const std::byte> mapping);
void forget_mapped_pages(const std::byte* mapping);

}  // namespace doppler
