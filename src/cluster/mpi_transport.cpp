#include "cluster/mpi_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/say.h"
#include "cluster/mpi_plugin.h"
#include "cluster/plugin.h"

namespace doppler {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kMessage = 1, kSign = 2;                   // tags
constexpr auto kSignEvery = 250ms;                       // of life
constexpr auto kSilence = 2500ms;                        // after which a rank counts as dead
constexpr auto kPushEvery = 100us;                       // looks after messages that are on their way
constexpr auto kLeaveAtMost = 3s;                        // for the last messages, and for the others to come
constexpr int kSpins = 2000;                             // looks for a message before the thread sleeps between them
constexpr Clock::duration kNap = 100us, kLongNap = 1ms;  // the second after a second without a message
constexpr size_t kMostBytes = size_t{1} << 30;           // of a message

int from_environment(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* text = std::getenv(name);
    if (const int value = text ? std::atoi(text) : 0; value > 0) return value;
  }
  return 1;
}

const MpiPlugin& plugin() {
  return *static_cast<const MpiPlugin*>(load_plugin({.file = kMpiPluginFile,
                                                     .variable = "DOPPLER_MPI",
                                                     .symbol = kMpiPluginSymbol,
                                                     .version = kMpiPluginVersion,
                                                     .needed = "this program was started as several ranks",
                                                     .package = "libopenmpi-dev"}));
}

class Ranks : public MpiTransport {
 public:
  Ranks() : mpi_(plugin()) {
    check(mpi_.init(&rank_, &size_), "MPI does not start");
    heard_.assign(static_cast<size_t>(size_), Clock::now());
    thread_ = std::thread([this] { watch(); });
  }

  // The process ends without having left: the launcher sees to the others.
  ~Ranks() override { stop(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  uint64_t sent_bytes() const override { return sent_; }

  void send(int to, Message message) override {
    if (message.size() > kMostBytes) {
      fail({.code = ErrorCode::kUnsupported,
            .what = "a message between ranks is too long",
            .expected = fmt::format("{} bytes at most", kMostBytes),
            .got = std::to_string(message.size())});
    }
    sent_ += message.size();
    {
      const std::lock_guard lock(mutex_);
      start(to, kMessage, std::move(message));
    }
    changed_.notify_all();
  }

  Message receive(int from) override {
    Message message;
    const auto begun = Clock::now();
    for (int looked = 0;; ++looked) {
      {
        const std::lock_guard lock(mutex_);
        if (take(from, kMessage, message)) return message;
      }
      if (looked < kSpins) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(Clock::now() - begun < 1s ? kNap : kLongNap);
      }
    }
  }

  void leave() override {
    stop();
    const auto latest = Clock::now() + kLeaveAtMost;
    while (!sends_.empty() && Clock::now() < latest) {
      push();
      std::this_thread::sleep_for(kPushEvery);
    }
    if (!sends_.empty()) abort(exit_code(ErrorCode::kDevice));
    // MPI waits here for all ranks, one that has just died among them.
    std::thread([] {
      std::this_thread::sleep_for(kLeaveAtMost);
      say("the ranks do not come to an end together. The job ends");
      std::_Exit(exit_code(ErrorCode::kDevice));
    }).detach();
    check(mpi_.finalize(), "MPI does not end");
  }

  [[noreturn]] void abort(int code) override {
    mpi_.abort(code);
    std::_Exit(code);
  }

 private:
  struct Send {
    Message message;
    void* request = nullptr;
  };

  void check(int error, const char* what) {
    if (error == 0) return;
    char text[256] = "";
    mpi_.describe(error, text, sizeof(text));
    end(fmt::format("{} (rank {}): {}", what, rank_, text));
  }

  // Any thread's: nothing that waits for another rank can go on.
  [[noreturn]] void end(const std::string& sentence) {
    say("{}. The job ends", sentence);
    Ranks::abort(exit_code(ErrorCode::kDevice));
  }

  // With the lock, these three.
  void start(int to, int tag, Message message) {
    Send& send = sends_.emplace_back();
    send.message = std::move(message);
    check(mpi_.send(send.message.data(), send.message.size(), to, tag, &send.request), "a message cannot be sent");
  }
  void push() {
    for (auto send = sends_.begin(); send != sends_.end();) {
      int done = 0;
      check(mpi_.test(&send->request, &done), "a message cannot be sent");
      send = done != 0 ? sends_.erase(send) : std::next(send);
    }
  }
  bool take(int from, int tag, Message& message) {
    auto& [receiving, request] = tag == kMessage ? receiving_ : sign_;
    if (!request) {
      int there = 0;
      size_t bytes = 0;
      check(mpi_.probe(from, tag, &there, &bytes), "messages cannot be received");
      if (there == 0) return false;
      receiving.resize(bytes);
      check(mpi_.receive(receiving.data(), bytes, from, tag, &request), "a message cannot be received");
    }
    int done = 0;
    check(mpi_.test(&request, &done), "a message cannot be received");
    if (done == 0) return false;
    message = std::move(receiving);
    return true;
  }

  // The thread beside: sends signs of life, listens for others', and helps long messages on while everybody computes.
  void watch() {
    auto next_sign = Clock::now();
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      push();
      const auto now = Clock::now();
      if (now >= next_sign) {
        for (int other = 0; other < size_; ++other) {
          if (other != rank_) start(other, kSign, {});
        }
        next_sign = now + kSignEvery;
        listen();
      }
      changed_.wait_for(lock, sends_.empty() ? Clock::duration(kSignEvery / 2) : Clock::duration(kPushEvery));
    }
  }

  void listen() {
    const auto now = Clock::now();
    // This process stood still itself (a laptop's lid, a debugger): it cannot know.
    if (now - listened_ > kSilence / 2) std::fill(heard_.begin(), heard_.end(), now);
    listened_ = now;
    Message sign;
    for (int other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      auto& heard = heard_[static_cast<size_t>(other)];
      while (take(other, kSign, sign)) heard = now;
      if (now - heard < kSilence) continue;
      end(fmt::format("rank {} has not been heard of for {:.1f} s: it or its machine is dead or stands still", other,
                      std::chrono::duration<double>(now - heard).count()));
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  const MpiPlugin& mpi_;
  int rank_ = 0, size_ = 1;
  std::mutex mutex_;  // all calls of MPI
  std::condition_variable changed_;
  bool stopping_ = false;
  std::list<Send> sends_;
  std::pair<Message, void*> receiving_, sign_;  // the one that is coming in
  std::vector<Clock::time_point> heard_;        // of each rank
  Clock::time_point listened_ = Clock::now();
  std::atomic<uint64_t> sent_ = 0;
  std::thread thread_;
};

}  // namespace

int launched_ranks() {
  if (std::getenv("PMIX_RANK") && !std::getenv("OMPI_COMM_WORLD_SIZE")) return from_environment({"SLURM_NTASKS"});
  return from_environment({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
}

int launched_ranks_here() { return from_environment({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}); }

std::unique_ptr<MpiTransport> MpiTransport::open() { return std::make_unique<Ranks>(); }

}  // namespace doppler
