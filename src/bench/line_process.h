// A child process that answers JSON lines with JSON lines.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"

namespace doppler {

class LineProcess {
 public:
  // Starts `command` in `folder`. What it writes on standard error is kept out of the way, for the message if it dies.
  LineProcess(const std::vector<std::string>& command, const std::filesystem::path& folder);
  ~LineProcess();  // ends it
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;

  // Waits for the answer. Fails if the process ends, or answers {"error": …}.
  Json ask(const Json& request);

  uint64_t peak_bytes() const;  // the most memory that was resident

 private:
  std::string name_;
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
  std::string pending_;  // read, not yet a whole line
};

}  // namespace doppler
