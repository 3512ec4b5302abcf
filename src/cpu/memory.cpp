#include "cpu/memory.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <utility>

#include "base/error.h"

namespace doppler::cpu {

Memory::Memory(size_t bytes, const char* what) : size_(bytes) {
  block_ = bytes > SIZE_MAX - kLine ? nullptr : std::calloc(1, bytes + kLine);
  if (!block_) {
    fail({ErrorCode::kMemory, fmt::format("there is not enough memory for {}", what), "",
          fmt::format("{} MiB", bytes >> 20), "", "Use a smaller --context or a smaller model"});
  }
  data_ = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(block_), kLine));
}

Memory::~Memory() { std::free(block_); }

Memory::Memory(Memory&& other) noexcept
    : block_(std::exchange(other.block_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(block_, other.block_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace doppler::cpu
