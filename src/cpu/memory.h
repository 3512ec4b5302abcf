// One zeroed, cache-line aligned piece of memory. Large pieces take up room only where they are touched.
#pragma once

#include <cstddef>

namespace doppler::cpu {

class Memory {
 public:
  Memory() = default;
  // Fails with `what` the memory is for when there is not enough.
  Memory(size_t bytes, const char* what);
  // Not zeroed, and in large pages where the system has them: for what is read again and again in long strides.
  static Memory large(size_t bytes, const char* what);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  template <class T>
  T* as(size_t offset_bytes = 0) const {
    return reinterpret_cast<T*>(data_ + offset_bytes);
  }

 private:
  void* block_ = nullptr;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Bytes that could be had without swapping anything out; the largest number where the system does not say.
size_t available_memory();

constexpr size_t kLine = 64;
constexpr size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace doppler::cpu
