// Any bytes as a file of token ids (.npy, JSON, numbers): an error that says so, or ids of which none is negative.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "cli/token_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace doppler;
  const int fd = ::memfd_create("fuzz", 0);
  if (fd < 0 || ::write(fd, data, size) != static_cast<ssize_t>(size)) std::abort();
  try {
    const std::vector<int32_t> ids = read_token_file("/proc/self/fd/" + std::to_string(fd));
    if (ids.size() > size) std::abort();  // a number takes a byte at least
    for (const int32_t id : ids) {
      if (id < 0) std::abort();
    }
  } catch (const Failure&) {
  }
  ::close(fd);
  return 0;
}
