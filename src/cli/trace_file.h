// --trace-file: where base/timeline.h writes to.
#pragma once

#include "cli/options.h"

namespace doppler {

void add_trace_file(Verb program);

// From its making to its end the file is open; then the array is closed. A file whose program was killed lacks the last
// bracket, which the format allows.
class TraceFileCloser {
 public:
  TraceFileCloser() = default;
  ~TraceFileCloser();
  TraceFileCloser(const TraceFileCloser&) = delete;
  TraceFileCloser& operator=(const TraceFileCloser&) = delete;
};

}  // namespace doppler
