#include "base/threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <exception>
#include <fstream>
#include <utility>
#include <vector>

#include "base/cpu_quota.h"
#include "base/say.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace doppler {
namespace {

// About 50 µs: longer than the gap between two steps of a token, shorter than anybody notices.
constexpr int kSpins = 2000;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Cores of the affinity mask, however many the machine has; 0 if the system does not say.
int cores_by_affinity() {
  for (int most = 1024; most <= 1 << 20; most *= 4) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(most));
    if (!set) return 0;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(most));
    const bool known = ::sched_getaffinity(0, bytes, set) == 0;
    const bool too_few = !known && errno == EINVAL;
    const int cores = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (!too_few) return cores;
  }
  return 0;
}

// Thrown where a thread waits at a barrier that another will not reach; never leaves the pool.
struct Abandoned {};

}  // namespace

int available_cores() {
  double cores = std::max(1, cores_by_affinity());
  std::ifstream in("/proc/self/cgroup");
  std::string membership;
  std::getline(in, membership, '\0');  // all of it; what cannot be read sets no quota
  if (const auto quota = cpu_quota(membership, "/sys/fs/cgroup")) cores = std::min(cores, std::ceil(*quota));
  return static_cast<int>(cores);
}

struct ThreadPool::State {
  explicit State(int threads) {
    // Who spins where others wait for the core keeps them from what it waits for.
    spins = threads <= available_cores() ? kSpins : 0;
    workers.reserve(static_cast<size_t>(threads - 1));
    for (int i = 1; i < threads; ++i) {
      Worker& worker = workers.emplace_back(Worker{this, i, {}});
      if (const int error = ::pthread_create(&worker.thread, nullptr, work, &worker); error != 0) {
        workers.pop_back();
        say("only {} of {} threads could be started: {}", i, threads, std::strerror(error));
        break;
      }
    }
    count = static_cast<int>(workers.size()) + 1;
  }

  ~State() {
    stopping = true;
    start();
    for (const Worker& worker : workers) ::pthread_join(worker.thread, nullptr);
  }

  void start() {
    generation.fetch_add(1, std::memory_order_release);
    generation.notify_all();
  }

  struct Worker {
    State* state;
    int index;
    pthread_t thread;
  };

  static void* work(void* argument) {
    const Worker& self = *static_cast<Worker*>(argument);
    self.state->work(self.index);
    return nullptr;
  }

  void work(int index) {
    uint32_t seen = 0;
    for (;;) {
      for (int i = 0; i < spins && generation.load(std::memory_order_acquire) == seen; ++i) pause();
      while (generation.load(std::memory_order_acquire) == seen) generation.wait(seen, std::memory_order_acquire);
      ++seen;
      if (stopping) return;
      do_share(index);
      unfinished.fetch_sub(1, std::memory_order_release);
      unfinished.notify_one();
    }
  }

  // The first exception is kept for the caller, and whoever waits at a barrier goes home.
  void do_share(int index) noexcept {
    try {
      (*job)(index, count);
    } catch (...) {
      if (broken.exchange(true)) return;
      fault = std::current_exception();
      round.fetch_add(1, std::memory_order_release);
      round.notify_all();
    }
  }

  int count = 1, spins = 0;  // written before the first job
  const std::function<void(int, int)>* job = nullptr;
  std::atomic<uint32_t> generation{0};
  std::atomic<int> unfinished{0};
  std::atomic<int> arrived{0};
  std::atomic<uint32_t> round{0};
  std::atomic<bool> stopping{false};
  std::atomic<bool> broken{false};  // a thread has thrown out of this job
  std::exception_ptr fault;
  std::vector<Worker> workers;
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>(threads > 0 ? threads : available_cores())) {}
ThreadPool::~ThreadPool() = default;

int ThreadPool::size() const { return state_->count; }

void ThreadPool::run(const std::function<void(int, int)>& job) {
  State& s = *state_;
  if (s.count == 1) return job(0, 1);
  s.job = &job;
  s.unfinished.store(s.count - 1, std::memory_order_relaxed);
  s.start();
  s.do_share(0);
  for (int i = 0; i < s.spins && s.unfinished.load(std::memory_order_acquire) != 0; ++i) pause();
  for (int left; (left = s.unfinished.load(std::memory_order_acquire)) != 0;) s.unfinished.wait(left);
  if (!s.broken) return;
  s.broken = false;
  s.arrived = 0;
  std::rethrow_exception(std::exchange(s.fault, nullptr));
}

uint32_t ThreadPool::arrive() {
  State& s = *state_;
  const uint32_t round = s.round.load(std::memory_order_acquire);
  if (s.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == s.count) {
    s.arrived.store(0, std::memory_order_relaxed);
    s.round.fetch_add(1, std::memory_order_release);
    s.round.notify_all();
  }
  return round;
}

bool ThreadPool::passed(uint32_t round) const { return state_->round.load(std::memory_order_acquire) != round; }

void ThreadPool::wait(uint32_t round) {
  for (int i = 0; i < state_->spins && !passed(round); ++i) pause();
  while (!passed(round) && !state_->broken) state_->round.wait(round);
  if (state_->broken) throw Abandoned{};
}

Range split_range(long n, int index, int count, long grain) {
  const long grains = (n + grain - 1) / grain;
  const long begin = grains * index / count, end = grains * (index + 1) / count;
  return {std::min(n, begin * grain), std::min(n, end * grain)};
}

}  // namespace doppler
