#include "cpu/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "base/error.h"

namespace doppler::cpu {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;

[[noreturn]] void too_little(size_t bytes, const char* what) {
  fail({.code = ErrorCode::kMemory,
        .what = fmt::format("there is not enough memory for {}", what),
        .expected = fmt::format("{} MiB", bytes >> 20),
        .todo = "Use a smaller --context or a smaller model"});
}

}  // namespace

Memory::Memory(size_t bytes, const char* what) : size_(bytes) {
  block_ = bytes > SIZE_MAX - kLine ? nullptr : std::calloc(1, bytes + kLine);
  if (!block_) too_little(bytes, what);
  data_ = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(block_), kLine));
}

Memory Memory::large(size_t bytes, const char* what) {
  if (bytes < kLargePage) return Memory(bytes, what);
  Memory m;
  if (bytes > SIZE_MAX - kLargePage || posix_memalign(&m.block_, kLargePage, round_up(bytes, kLargePage)) != 0) {
    too_little(bytes, what);
  }
  madvise(m.block_, round_up(bytes, kLargePage), MADV_HUGEPAGE);  // a wish; small pages do as well
  m.data_ = static_cast<std::byte*>(m.block_);
  m.size_ = bytes;
  return m;
}

size_t available_memory() {
  std::ifstream info("/proc/meminfo");
  size_t kib = 0;
  for (std::string name, unit; info >> name >> kib; std::getline(info, unit)) {
    if (name == "MemAvailable:") return kib << 10;
  }
  return SIZE_MAX;
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
