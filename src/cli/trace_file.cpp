#include "cli/trace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/files.h"
#include "base/say.h"
#include "base/timeline.h"

namespace doppler {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // no viewer opens more

int fd = -1;
std::atomic<uint64_t> written{0};
std::atomic<bool> ended{false};

// Whole events in one call, so that a program that is killed leaves whole events.
bool put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

void take(std::string_view events) {
  if (ended) return;
  if ((written += events.size()) > kMostBytes) {
    if (!ended.exchange(true)) say("the trace file has {} MiB; the rest is left out", kMostBytes >> 20);
  } else if (!put(events) && !ended.exchange(true)) {
    say("the trace file could not be written: {}. The rest is left out", std::strerror(errno));
  }
}

void open_trace_file(const std::string& path) {
  fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) fail_io("the trace file could not be made", path, errno);
  put(timeline::start(take));
}

}  // namespace

void add_trace_file(Verb program) {
  program
      .add_option_function("--trace-file", open_trace_file,
                           "Write what took how long to this file: tokens, layers, steps, and a GPU's dispatches, in "
                           "Chrome's trace format, for ui.perfetto.dev")
      .type_name("FILE");
}

TraceFileCloser::~TraceFileCloser() {
  if (fd < 0) return;
  timeline::stop();
  put("\n]\n");
  ::close(fd);
}

}  // namespace doppler
