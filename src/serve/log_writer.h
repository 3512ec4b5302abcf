// Lines for whoever watches the server, written by a thread of their own: who logs never waits for the reader and never
// fails. Lines that find no room, or that the system does not take (a pipe nobody reads, a full disk), are dropped and
// counted, and the next line that goes out is preceded by one that says how many.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace doppler::serve {

class LogWriter {
 public:
  // `tell` makes the line about lines that were dropped; `most` bytes may wait.
  LogWriter(int file, std::function<std::string(uint64_t dropped)> tell, size_t most = 1 << 20);
  ~LogWriter();  // what waits is written, for half a second at most
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  void line(std::string_view text) noexcept;  // without the line's end
  uint64_t dropped() const { return dropped_; }

 private:
  void loop();
  bool write(std::string_view text);
  bool out_of_time();

  const int file_;
  const std::function<std::string(uint64_t)> tell_;
  const size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> lines_;
  size_t bytes_ = 0;  // of lines_
  bool stopping_ = false;
  std::chrono::steady_clock::time_point deadline_{};  // once it is stopping
  std::atomic<uint64_t> dropped_{0};
  std::thread thread_;
};

}  // namespace doppler::serve
