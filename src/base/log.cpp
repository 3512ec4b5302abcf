#include "base/log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/say.h"

namespace doppler {

void set_trace(const std::string& subjects) {
  uint32_t bits = 0;
  for (size_t at = 0; at < subjects.size();) {
    const size_t comma = std::min(subjects.find(',', at), subjects.size());
    std::string word = subjects.substr(at, comma - at);
    at = comma + 1;
    const bool off = !word.empty() && word[0] == '-';
    if (off) word.erase(0, 1);
    const auto found = std::find(std::begin(kTraceNames), std::end(kTraceNames), word);
    uint32_t mask = 0;
    if (word == "all") {
      mask = ~0u;
    } else if (found != std::end(kTraceNames)) {
      mask = 1u << (found - std::begin(kTraceNames));
    } else {
      fail({.code = ErrorCode::kUsage,
            .what = "an unknown subject to trace",
            .where = "--trace",
            .expected = fmt::format("all, {}", fmt::join(kTraceNames, ", ")),
            .got = word});
    }
    bits = off ? bits & ~mask : bits | mask;
  }
  detail::trace_bits = bits;
}

void set_log_level(const std::string& level) {
  if (level == "silent") {
    detail::log_level = LogLevel::kSilent;
  } else if (level == "info") {
    detail::log_level = LogLevel::kInfo;
  } else if (level == "verbose") {
    detail::log_level = LogLevel::kVerbose;
  } else {
    fail({.code = ErrorCode::kUsage,
          .what = "an unknown level of talk",
          .where = "--log",
          .expected = "silent, info or verbose",
          .got = level});
  }
}

void trace(Trace subject, std::string_view line) {
  write_stderr(fmt::format("[{}] {}\n", kTraceNames[static_cast<size_t>(subject)], visible(line)));
}

bool info_enabled() {
  return log_level() == LogLevel::kVerbose || (log_level() == LogLevel::kInfo && isatty(STDERR_FILENO) != 0);
}

}  // namespace doppler
