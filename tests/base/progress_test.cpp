#include "base/progress.h"

#include <gtest/gtest.h>

namespace doppler {
namespace {

TEST(Progress, TheLineShowsShareRateAndRemainingTime) {
  EXPECT_EQ(progress_line("convert", "weights", 250'000'000, 1'000'000'000, 4, 20),
            "convert [###       ]  25 %  62.5 Mweights/s  0:12 left");
  EXPECT_EQ(progress_line("x", "B", 10, 10, 2, 20), "x [##########] 100 %  5 B/s  0:00 left");
}

TEST(Progress, BeforeAnythingIsDoneNoTimeIsPromised) {
  EXPECT_EQ(progress_line("x", "B", 0, 100, 0, 20), "x [          ]   0 %  0 B/s  -:-- left");
  EXPECT_EQ(progress_line("x", "B", 0, 0, 0, 20), "x [          ]   0 %  0 B/s  -:-- left");
}

TEST(Progress, HoursAreWrittenAsHours) {
  EXPECT_NE(progress_line("x", "B", 1, 7201, 1, 40).find("2:00:00 left"), std::string::npos);
}

TEST(Progress, PrefixesKeepThreeDigits) {
  EXPECT_EQ(with_prefix(0), "0 ");
  EXPECT_EQ(with_prefix(999), "999 ");
  EXPECT_EQ(with_prefix(999.6), "1.00 k");
  EXPECT_EQ(with_prefix(1234567), "1.23 M");
  EXPECT_EQ(with_prefix(12345678), "12.3 M");
  EXPECT_EQ(with_prefix(123456789), "123 M");
  EXPECT_EQ(with_prefix(1e12), "1.00 T");
}

}  // namespace
}  // namespace doppler
