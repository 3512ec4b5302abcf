// What a person wants to be told while things run. Two switches: how much is said in general (--log), and traces of
// single subjects (--trace kernels,attn,-buffers). Both write to standard error. A trace that is off costs the test of
// one bit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace doppler {

enum class LogLevel : uint8_t {
  kSilent,   // errors only
  kInfo,     // a line or two, where standard error is a terminal
  kVerbose,  // the same everywhere, and more of it
};

enum class Trace : uint8_t { kLoader, kKernels, kLogits, kEmbed, kAttn, kFfn, kKv, kSample, kBuffers, kPerf };
inline constexpr std::string_view kTraceNames[] = {"loader", "kernels", "logits", "embed",   "attn",
                                                   "ffn",    "kv",      "sample", "buffers", "perf"};

// Which steps' lines are printed, of the subjects that are traced.
struct TraceLimits {
  std::vector<int> layers;  // empty: all
  int decode_steps = 0;     // so many decoded tokens after the prompt; 0: all
};

namespace detail {
inline uint32_t trace_bits = 0;  // set before work starts, then only read
inline LogLevel log_level = LogLevel::kInfo;
inline TraceLimits trace_limits;
}  // namespace detail

inline bool tracing(Trace subject) { return (detail::trace_bits >> static_cast<unsigned>(subject) & 1u) != 0; }
inline LogLevel log_level() { return detail::log_level; }
inline const TraceLimits& trace_limits() { return detail::trace_limits; }

// "kernels,attn", "all,-buffers"; a leading minus takes a subject out. Fails for a word that is no subject.
void set_trace(const std::string& subjects);
inline void set_trace_limits(TraceLimits limits) { detail::trace_limits = std::move(limits); }
// "silent", "info" or "verbose".
void set_log_level(const std::string& level);

// "[kernels] line" on standard error.
void trace(Trace subject, std::string_view line);

// Whether lines about what is going on are wanted: verbose, or info on a terminal.
bool info_enabled();

}  // namespace doppler
