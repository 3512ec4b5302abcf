#include "serve/watch.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace doppler::serve {

std::string watch_table(const EngineGauges& before, const EngineGauges& now, double seconds, int rows, int columns) {
  std::string out;
  const size_t width = static_cast<size_t>(std::max(1, columns));
  const auto line = [&](const std::string& text) { out += text.substr(0, width) + "\n"; };
  const auto share = [](size_t part, size_t whole) {
    return whole > 0 ? 100 * static_cast<double>(part) / static_cast<double>(whole) : 0;
  };
  line(fmt::format("{} running, {} waiting   cache {:.0f} % of {} tokens   {:.1f} tok/s", now.running, now.waiting,
                   share(now.held_pages, now.pages), now.cache_tokens,
                   seconds > 0 ? static_cast<double>(now.generated - before.generated) / seconds : 0));
  const size_t most = static_cast<size_t>(std::max(0, rows - 3)), shown = std::min(now.requests.size(), most);
  if (shown == 0) return out;
  line(fmt::format("{:>8}  {:<16} {:<20} {:>7} {:>7} {:>8} {:>7}", "request", "model", "client", "prompt", "answer",
                   "seconds", "tok/s"));
  for (size_t i = 0; i < shown; ++i) {
    const RequestRow& row = now.requests[i];
    const auto old = std::find_if(before.requests.begin(), before.requests.end(),
                                  [&](const RequestRow& other) { return other.number == row.number; });
    const size_t then = old == before.requests.end() ? 0 : old->tokens;
    line(fmt::format("{:>8}  {:<16.16} {:<20.20} {:>7} {:>7} {:>8.1f} {:>7.1f}", row.number, row.model, row.client,
                     row.prompt, row.tokens, row.seconds,
                     seconds > 0 ? static_cast<double>(row.tokens - then) / seconds : 0));
  }
  if (now.requests.size() > shown) line(fmt::format("{:>8} more", now.requests.size() - shown));
  return out;
}

Watch::Watch(int file, std::function<EngineGauges()> gauges, std::chrono::milliseconds every)
    : file_(file), gauges_(std::move(gauges)), every_(every), thread_([this] { loop(); }) {}

Watch::~Watch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watch::loop() {
  EngineGauges before;
  auto then = std::chrono::steady_clock::now();
  long drawn = 0;  // lines
  while (true) {
    winsize size{};
    const bool known = ::ioctl(file_, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0;
    const EngineGauges now = gauges_();
    const auto at = std::chrono::steady_clock::now();
    const std::string table = watch_table(before, now, std::chrono::duration<double>(at - then).count(),
                                          known ? size.ws_row : 24, known ? size.ws_col : 80);
    // Back to the first line of the last table, and clear from there.
    const std::string text = (drawn > 0 ? fmt::format("\x1b[{}A\x1b[J", drawn) : "") + table;
    if (::write(file_, text.data(), text.size()) < 0) return;  // nobody looks any more
    drawn = std::count(table.begin(), table.end(), '\n');
    before = now;
    then = at;
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, every_, [&] { return stopping_; })) return;
  }
}

}  // namespace doppler::serve
