#include "base/timeline.h"

#include <chrono>

#include "base/json.h"
#include "base/version.h"

namespace doppler::timeline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kFlushBytes = 1 << 16;

Sink sink = nullptr;
Clock::time_point epoch;
thread_local std::string pending;  // whole events
thread_local int open_spans = 0;

// Microseconds with three places, which is what the format counts in.
void append_us(std::string& text, uint64_t ns) {
  char digits[24];
  char* at = digits + sizeof digits;
  for (int place = 0; place < 3; ++place, ns /= 10) *--at = static_cast<char>('0' + ns % 10);
  *--at = '.';
  do {
    *--at = static_cast<char>('0' + ns % 10);
    ns /= 10;
  } while (ns > 0);
  text.append(at, digits + sizeof digits);
}

// "pid":…,"tid":…, as the format calls them.
constexpr int pid_of(Track track) { return track == Track::kGpu ? 2 : 1; }
constexpr int tid_of(Track track) { return track == Track::kTokens ? 2 : 1; }

std::string name_event(const char* kind, Track track, const std::string& name) {
  return Json{{"name", kind}, {"ph", "M"}, {"pid", pid_of(track)}, {"tid", tid_of(track)}, {"args", {{"name", name}}}}
      .dump();
}

}  // namespace

std::string start(Sink to) {
  sink = to;
  epoch = Clock::now();
  detail::on = true;
  return "[\n" + name_event("process_name", Track::kEngine, "doppler " + std::string(kVersion)) + ",\n" +
         name_event("thread_name", Track::kEngine, "engine") + ",\n" +
         name_event("thread_name", Track::kTokens, "tokens of a batch, even shares") + ",\n" +
         name_event("process_name", Track::kGpu, "GPU") + ",\n" + name_event("thread_name", Track::kGpu, "dispatches");
}

void stop() {
  flush();
  detail::on = false;
}

uint64_t now() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - epoch).count());
}

std::string event(std::string_view name, std::string_view category, Track track, std::string_view arguments) {
  std::string text =
      ",\n{\"name\":" + Json(std::string(name)).dump() + ",\"cat\":" + Json(std::string(category)).dump();
  text += R"(,"ph":"X","pid":)" + std::to_string(pid_of(track)) + R"(,"tid":)" + std::to_string(tid_of(track)) +
          R"(,"args":)";
  text += arguments;
  return text + ",\"ts\":";
}

void add(const std::string& event, uint64_t begin, uint64_t end) {
  pending += event;
  append_us(pending, begin);
  pending += ",\"dur\":";
  append_us(pending, end > begin ? end - begin : 0);
  pending += '}';
  if (pending.size() > kFlushBytes) flush();
}

void flush() {
  if (on() && !pending.empty()) sink(pending);
  pending.clear();
}

void Span::begin(std::string_view name, std::string_view category, std::string_view arguments) {
  event_ = event(name, category, Track::kEngine, arguments);
  ++open_spans;
  begin_ = now();
}

void Span::end() {
  add(event_, begin_, now());
  if (--open_spans == 0) flush();
}

}  // namespace doppler::timeline
