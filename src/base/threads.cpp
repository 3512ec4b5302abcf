#include "base/threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

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

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
  }
  if (cores.empty()) cores.push_back(0);
  return cores;
}

}  // namespace

int available_cores() { return static_cast<int>(allowed_cores().size()); }

struct ThreadPool::State {
  explicit State(int threads) : count(threads) {
    const std::vector<int> cores = allowed_cores();
    for (int i = 1; i < count; ++i) {
      workers.emplace_back([this, i] { work(i); });
      if (count <= static_cast<int>(cores.size())) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cores[static_cast<size_t>(i)], &set);
        pthread_setaffinity_np(workers.back().native_handle(), sizeof set, &set);  // a hint; failure is harmless
      }
    }
  }

  ~State() {
    stopping = true;
    start();
    for (std::thread& worker : workers) worker.join();
  }

  void start() {
    generation.fetch_add(1, std::memory_order_release);
    generation.notify_all();
  }

  void work(int index) {
    uint32_t seen = 0;
    for (;;) {
      for (int i = 0; i < kSpins && generation.load(std::memory_order_acquire) == seen; ++i) pause();
      while (generation.load(std::memory_order_acquire) == seen) generation.wait(seen, std::memory_order_acquire);
      ++seen;
      if (stopping) return;
      (*job)(index, count);
      unfinished.fetch_sub(1, std::memory_order_release);
      unfinished.notify_one();
    }
  }

  const int count;
  const std::function<void(int, int)>* job = nullptr;
  std::atomic<uint32_t> generation{0};
  std::atomic<int> unfinished{0};
  std::atomic<int> arrived{0};
  std::atomic<uint32_t> round{0};
  std::atomic<bool> stopping{false};
  std::vector<std::thread> workers;
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
  job(0, s.count);
  for (int i = 0; i < kSpins && s.unfinished.load(std::memory_order_acquire) != 0; ++i) pause();
  for (int left; (left = s.unfinished.load(std::memory_order_acquire)) != 0;) s.unfinished.wait(left);
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
  for (int i = 0; i < kSpins && !passed(round); ++i) pause();
  while (!passed(round)) state_->round.wait(round);
}

Range split_range(long n, int index, int count, long grain) {
  const long grains = (n + grain - 1) / grain;
  const long begin = grains * index / count, end = grains * (index + 1) / count;
  return {std::min(n, begin * grain), std::min(n, end * grain)};
}

}  // namespace doppler
