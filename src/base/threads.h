// A fixed pool of threads for work that is split evenly and often: a few microseconds between jobs, so workers spin
// a while before they sleep.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace doppler {

// Threads that can run at once: the cores of this process's affinity, or fewer where its control groups have a quota of
// CPU time (1.5 cores keep two threads busy).
int available_cores();

class ThreadPool {
 public:
  // `threads` counts the caller, which works too; 1 starts none. 0 means available_cores(). Where the system refuses to
  // start so many there are fewer, which is said. None is pinned: another pool or process may be at the same core.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Calls job(index, size()) once on every thread of the pool and returns when all are done. Not reentrant.
  // If one throws, the others end at their next barrier, and the first exception goes on from here.
  void run(const std::function<void(int index, int count)>& job);

  // Waits, inside a job, until every thread of the pool is here.
  void barrier() { wait(arrive()); }
  // The same in two steps, for who has something to do meanwhile.
  uint32_t arrive();
  bool passed(uint32_t round) const;
  void wait(uint32_t round);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Splits [0, n) into `count` near-equal consecutive ranges, borders at multiples of `grain`; range `index`.
struct Range {
  long begin, end;
};
Range split_range(long n, int index, int count, long grain = 1);

}  // namespace doppler
