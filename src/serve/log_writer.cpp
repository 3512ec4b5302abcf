#include "serve/log_writer.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace doppler::serve {

LogWriter::LogWriter(int file, std::function<std::string(uint64_t dropped)> tell, size_t most)
    : file_(file), tell_(std::move(tell)), most_(most), thread_([this] { loop(); }) {}

LogWriter::~LogWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    deadline_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  }
  changed_.notify_all();
  thread_.join();
}

void LogWriter::line(std::string_view text) noexcept {
  try {
    std::string whole;
    whole.reserve(text.size() + 1);
    whole.append(text).append("\n");
    const std::lock_guard lock(mutex_);
    if (bytes_ + whole.size() <= most_) {
      bytes_ += whole.size();
      lines_.push_back(std::move(whole));
      changed_.notify_all();
      return;
    }
  } catch (...) {  // no memory: one line less
  }
  ++dropped_;
}

bool LogWriter::out_of_time() {
  const std::lock_guard lock(mutex_);
  return stopping_ && std::chrono::steady_clock::now() >= deadline_;
}

// In pieces that a pipe which has room takes without blocking (pipe(7): PIPE_BUF, 4096 bytes).
bool LogWriter::write(std::string_view text) {
  while (!text.empty()) {
    pollfd ready{.fd = file_, .events = POLLOUT, .revents = 0};
    if (::poll(&ready, 1, 50) <= 0) {
      if (out_of_time()) return false;
      continue;
    }
    const ssize_t written = ::write(file_, text.data(), std::min<size_t>(text.size(), 4096));
    if (written < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

void LogWriter::loop() {
  uint64_t told = 0;
  while (true) {
    std::string next;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !lines_.empty(); });
      if (lines_.empty()) return;
      next = std::move(lines_.front());
      lines_.pop_front();
      bytes_ -= next.size();
    }
    const uint64_t dropped = dropped_;
    if (dropped > told && write(tell_(dropped - told) + "\n")) told = dropped;
    if (!write(next)) ++dropped_;
    if (out_of_time()) return;
  }
}

}  // namespace doppler::serve
