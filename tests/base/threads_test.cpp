#include "base/threads.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"

namespace doppler {
namespace {

TEST(ThreadPool, EveryThreadRunsEveryJobOnce) {
  for (const int size : {1, 2, 3, 5}) {
    ThreadPool pool(size);
    ASSERT_EQ(pool.size(), size);
    std::vector<std::atomic<int>> calls(static_cast<size_t>(size));
    for (int round = 0; round < 500; ++round) {
      pool.run([&](int index, int count) {
        EXPECT_EQ(count, size);
        ++calls[static_cast<size_t>(index)];
      });
    }
    for (const auto& count : calls) EXPECT_EQ(count, 500);
  }
}

TEST(ThreadPool, ABarrierHoldsEveryoneUntilTheLastArrives) {
  ThreadPool pool(4);
  std::atomic<int> arrived{0};
  std::atomic<bool> early{false};
  pool.run([&](int, int count) {
    for (int round = 1; round <= 200; ++round) {
      ++arrived;
      pool.barrier();
      if (arrived < round * count) early = true;
      pool.barrier();
    }
  });
  EXPECT_FALSE(early);
}

TEST(ThreadPool, ABarrierInTwoStepsLetsAThreadSeeThatAllHaveArrived) {
  ThreadPool pool(3);
  std::atomic<int> arrived{0};
  std::atomic<bool> early{false};
  pool.run([&](int, int count) {
    for (int round = 1; round <= 200; ++round) {
      ++arrived;
      const uint32_t here = pool.arrive();
      while (!pool.passed(here)) std::this_thread::yield();
      if (arrived < round * count) early = true;
      pool.wait(here);  // returns at once
      pool.barrier();
    }
  });
  EXPECT_FALSE(early);
}

// A job that every thread of the pool must do once.
int threads_at_work(ThreadPool& pool) {
  std::mutex mutex;
  std::set<int> seen;
  pool.run([&](int index, int) {
    const std::lock_guard lock(mutex);
    seen.insert(index);
  });
  return static_cast<int>(seen.size());
}

TEST(ThreadPool, WorksAloneWhereNoThreadCanBeStarted) {
  pthread_attr_t before, huge;
  ASSERT_EQ(::pthread_getattr_default_np(&before), 0);
  ::pthread_attr_init(&huge);
  ::pthread_attr_setstacksize(&huge, size_t{1} << 46);  // more than there are addresses
  ASSERT_EQ(::pthread_setattr_default_np(&huge), 0);
  {
    ThreadPool pool(4);
    EXPECT_EQ(pool.size(), 1);
    EXPECT_EQ(threads_at_work(pool), 1);
  }
  ::pthread_setattr_default_np(&before);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their shadows leave no room for a limit
TEST(ThreadPool, KeepsTheThreadsThatCouldBeStarted) {
  const auto check = [] {
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, size_t{256} << 20);
    ::pthread_setattr_default_np(&attributes);
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t bytes = pages * 4096 + (rlim_t{900} << 20);  // three stacks, and something to spare
    const rlimit limit{bytes, bytes};
    ::setrlimit(RLIMIT_AS, &limit);
    ThreadPool pool(16);
    const bool fewer = pool.size() > 1 && pool.size() < 16, all = threads_at_work(pool) == pool.size();
    ::_exit(fewer && all ? 0 : 1);
  };
  EXPECT_EXIT(check(), ::testing::ExitedWithCode(0), "of 16 threads could be started");
}
#endif

TEST(ThreadPool, AnExceptionOfAnyThreadReachesTheCallerAfterAllHaveFinished) {
  ThreadPool pool(4);
  for (int thrower = 0; thrower < 4; ++thrower) {
    std::atomic<int> finished{0};
    try {
      pool.run([&](int index, int) {
        if (index == thrower) fail({.code = ErrorCode::kFormat, .what = "no"});
        ++finished;
      });
      ADD_FAILURE() << "thread " << thrower;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.error.code, ErrorCode::kFormat);
      EXPECT_EQ(finished, 3);
    }
    EXPECT_EQ(threads_at_work(pool), 4);  // and it goes on working
  }
}

TEST(ThreadPool, WhoWaitsAtABarrierIsReleasedByAnException) {
  ThreadPool pool(4);
  for (int round = 0; round < 100; ++round) {
    const int thrower = round % 4;
    EXPECT_THROW(pool.run([&](int index, int) {
      pool.barrier();
      if (index == thrower) throw std::runtime_error("no");
      pool.barrier();
      ADD_FAILURE() << "passed a barrier that one thread never reached";
    }),
                 std::runtime_error);
    std::atomic<int> arrived{0};
    pool.run([&](int, int count) {  // barriers hold again
      ++arrived;
      pool.barrier();
      EXPECT_EQ(arrived, count);
    });
  }
}

TEST(ThreadPool, AvailableCoresAreAtMostThoseOfTheAffinity) {
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_LE(available_cores(), CPU_COUNT(&before));
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(available_cores(), 1);
  ::sched_setaffinity(0, sizeof before, &before);
}

TEST(ThreadPool, ItsThreadsMayRunOnAnyCoreOfTheCaller) {
  cpu_set_t caller;
  ASSERT_EQ(::sched_getaffinity(0, sizeof caller, &caller), 0);
  ThreadPool pool(available_cores());
  pool.run([&](int, int) {
    cpu_set_t mine;
    EXPECT_EQ(::sched_getaffinity(0, sizeof mine, &mine), 0);
    EXPECT_TRUE(CPU_EQUAL(&mine, &caller));
  });
}

TEST(Share, CoversEverythingOnceAtGrainBorders) {
  for (const long n : {0L, 1L, 7L, 64L, 1000L}) {
    for (const int count : {1, 2, 3, 7}) {
      for (const long grain : {1L, 4L, 16L}) {
        long next = 0;
        for (int i = 0; i < count; ++i) {
          const Range range = split_range(n, i, count, grain);
          EXPECT_EQ(range.begin, next);
          EXPECT_TRUE(range.end == n || range.end % grain == 0);
          next = range.end;
        }
        EXPECT_EQ(next, n);
      }
    }
  }
}

}  // namespace
}  // namespace doppler
