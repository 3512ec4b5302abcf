#include "base/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

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
      while (!pool.passed(here)) {
      }
      if (arrived < round * count) early = true;
      pool.wait(here);  // returns at once
      pool.barrier();
    }
  });
  EXPECT_FALSE(early);
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
