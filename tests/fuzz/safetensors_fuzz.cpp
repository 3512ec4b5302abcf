// Any bytes as a safetensors file: an error that says so, or tensors whose every byte can be read.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "format/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace doppler;
  const int fd = ::memfd_create("fuzz", 0);
  if (fd < 0 || ::write(fd, data, size) != static_cast<ssize_t>(size)) std::abort();
  try {
    const SafetensorsFile file("/proc/self/fd/" + std::to_string(fd));
    uint64_t sum = 0, bytes = 0;
    for (const auto& [name, raw] : file.tensors()) {
      for (const std::byte b : raw.bytes) sum += std::to_integer<uint64_t>(b);
      bytes += raw.bytes.size();
      Tensor tensor;
      if (to_tensor(raw, tensor) && tensor.bytes.size() != raw.bytes.size()) std::abort();
    }
    if (bytes > size || sum > 255 * bytes) std::abort();  // more than the file holds
  } catch (const Failure&) {
  }
  ::close(fd);
  return 0;
}
