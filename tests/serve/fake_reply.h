// A connection without a socket: what is posted waits until the test runs it, on the test's own thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>

#include "serve/http.h"

namespace doppler::serve {

class FakeReply : public HttpReply {
 public:
  void post(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
  }
  bool gone() const override { return false; }
  void on_gone(std::function<void()> work) override { on_gone_ = std::move(work); }
  void add_header(std::string, std::string) override {}
  void send(int status, std::string_view, std::string body, Headers) override {
    status_ = status;
    body_ = std::move(body);
    end();
  }
  void begin(std::string_view, std::string) override { status_ = 200; }
  void write(std::string bytes) override { body_ += bytes; }
  void end() override {
    ended_ = true;
    on_gone_ = nullptr;
  }
  bool begun() const override { return status_ != 0; }
  int status() const override { return status_; }

  // Runs what is posted until the answer has ended; false after a minute without work.
  bool run() {
    while (!ended_) {
      if (!run_one()) return false;
    }
    return true;
  }
  bool run_one() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::minutes(1), [&] { return !work_.empty(); })) return false;
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    work();
    return true;
  }
  void drop_work() {
    std::deque<std::function<void()>> dropped;
    const std::lock_guard lock(mutex_);
    dropped.swap(work_);
  }
  const std::string& body() const { return body_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::function<void()> on_gone_;
  std::string body_;
  bool ended_ = false;
  int status_ = 0;
};

}  // namespace doppler::serve
