// What took how long, as events of Chrome's trace format (chrome://tracing, Perfetto): what is being written here is
// one JSON array, event by event. Where nobody asked, a span costs the test of one byte.
//
// Times are nanoseconds since start(). Spans of one track lie inside each other or apart.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace doppler::timeline {

// Takes whole events, each with ",\n" before it.
using Sink = void (*)(std::string_view events);

namespace detail {
inline bool on = false;  // set before work starts
}
inline bool on() { return detail::on; }

// kTokens: where the times of single tokens are not known, their share of what is.
enum class Track : uint8_t { kEngine, kTokens, kGpu };

// Before anything else here, and before work starts. Returns the beginning of the file: "[", and the tracks' names.
std::string start(Sink sink);
void stop();  // nothing more is taken; what this thread has goes to the sink

uint64_t now();

// An event but for its times, which add() appends: what happens with every token is prepared once. `arguments` is a
// JSON object.
std::string event(std::string_view name, std::string_view category, Track track, std::string_view arguments = "{}");
void add(const std::string& event, uint64_t begin, uint64_t end);
void flush();  // this thread's events go to the sink; a span that lies in no other does so when it ends

// From here to the end of the scope, if begin() is called: `if (timeline::on()) span.begin(…)`.
class Span {
 public:
  Span() = default;
  ~Span() {
    if (!event_.empty()) end();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  void begin(std::string_view name, std::string_view category, std::string_view arguments = "{}");

 private:
  void end();

  std::string event_;
  uint64_t begin_ = 0;
};

}  // namespace doppler::timeline
