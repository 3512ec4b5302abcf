#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/say.h"

namespace doppler {
namespace {

int terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string clock_text(double seconds) {
  const long s = std::lround(std::min(seconds, 359'999.0));
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                   : fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace

std::string with_prefix(double value) {
  static constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  int step = 0;
  while (value >= 999.5 && step < 5) {
    value /= 1000;
    ++step;
  }
  const int digits = step == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, digits, kPrefixes[step]);
}

std::string progress_line(const std::string& label, const std::string& unit, uint64_t done, uint64_t all,
                          double seconds, int columns) {
  const double share = all ? std::min(1.0, static_cast<double>(done) / static_cast<double>(all)) : 0;
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  const std::string left = rate > 0 ? clock_text(static_cast<double>(all - std::min(done, all)) / rate) : "-:--";
  const std::string tail = fmt::format(" {:3.0f} %  {}{}/s  {} left", share * 100, with_prefix(rate), unit, left);
  const int width = std::clamp(columns - static_cast<int>(label.size() + tail.size()) - 4, 10, 40);
  const auto filled = static_cast<size_t>(std::lround(share * width));
  const std::string bar = std::string(filled, '#') + std::string(static_cast<size_t>(width) - filled, ' ');
  return fmt::format("{} [{}]{}", label, bar, tail);
}

Progress::Progress(std::string label, std::string unit)
    : label_(std::move(label)),
      unit_(std::move(unit)),
      terminal_(::isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      last_(start_ + std::chrono::milliseconds(400)) {}

Progress::~Progress() {
  if (drawn_) show_status("");
}

void Progress::update(uint64_t done, uint64_t all) {
  const auto now = Clock::now();
  if (!terminal_ || now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  drawn_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  show_status(progress_line(label_, unit_, done, all, seconds, terminal_columns()));
}

}  // namespace doppler
