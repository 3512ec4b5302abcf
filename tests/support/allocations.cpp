#include "support/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<long> count{0}, freed{0};

void free_counted(void* p) {
  if (p) ++freed;
  std::free(p);
}
}  // namespace

// All forms: a sanitizer's own would not go by way of the first.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++count;
  return std::malloc(size ? size : 1);
}
void* operator new(size_t size) {
  if (void* p = operator new(size, std::nothrow)) return p;
  throw std::bad_alloc();
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return operator new(size, std::nothrow); }
void* operator new[](size_t size) { return operator new(size); }
void operator delete(void* p) noexcept { free_counted(p); }
void operator delete(void* p, size_t) noexcept { free_counted(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { free_counted(p); }
void operator delete[](void* p) noexcept { free_counted(p); }
void operator delete[](void* p, size_t) noexcept { free_counted(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { free_counted(p); }

namespace doppler::testing {

long allocations() { return count; }
long live_allocations() { return count - freed; }

}  // namespace doppler::testing
