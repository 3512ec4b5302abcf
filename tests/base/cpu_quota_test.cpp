#include "base/cpu_quota.h"

#include "support/scratch.h"

namespace doppler {
namespace {

void put(const std::filesystem::path& folder, const std::string& name, const std::string& text) {
  std::filesystem::create_directories(folder);
  spill(folder / name, text);
}

TEST(CpuQuota, OfVersion2IsTheLeastOnTheWayUp) {
  const testing::Scratch root;
  EXPECT_FALSE(cpu_quota("0::/a/b\n", root.path()));
  put(root / "a/b", "cpu.max", "max 100000\n");
  EXPECT_FALSE(cpu_quota("0::/a/b\n", root.path()));
  put(root / "a/b", "cpu.max", "400000 100000\n");
  EXPECT_EQ(cpu_quota("0::/a/b\n", root.path()), 4);
  put(root / "a", "cpu.max", "150000 100000\n");
  EXPECT_EQ(cpu_quota("0::/a/b\n", root.path()), 1.5);
  EXPECT_EQ(cpu_quota("0::/a/other\n", root.path()), 1.5);
  EXPECT_FALSE(cpu_quota("0::/other\n", root.path()));
}

TEST(CpuQuota, OfVersion2BesideVersion1LiesInItsOwnFolder) {
  const testing::Scratch root;
  put(root / "unified/a", "cpu.max", "200000 100000");
  EXPECT_EQ(cpu_quota("1:cpu:/\n0::/a", root.path()), 2);
}

TEST(CpuQuota, OfVersion1IsInTheFolderOfItsControllers) {
  const testing::Scratch root;
  const std::string member = "9:memory:/m\n4:cpu,cpuacct:/a\n3:cpuset:/c\n";
  put(root / "cpu,cpuacct/a", "cpu.cfs_quota_us", "-1\n");
  put(root / "cpu,cpuacct/a", "cpu.cfs_period_us", "100000\n");
  put(root / "memory/m", "cpu.cfs_quota_us", "1000\n");  // no place for it: not looked at
  put(root / "memory/m", "cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(cpu_quota(member, root.path()));
  put(root / "cpu,cpuacct/a", "cpu.cfs_quota_us", "50000\n");
  EXPECT_EQ(cpu_quota(member, root.path()), 0.5);
  put(root / "cpu", "cpu.cfs_quota_us", "20000\n");  // the same under the name of one controller
  put(root / "cpu", "cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(member, root.path()), 0.2);
}

TEST(CpuQuota, OfAContainerThatSeesOnlyItsOwnGroupIsAtTheRoot) {
  const testing::Scratch root;
  put(root.path(), "cpu.max", "300000 100000");
  EXPECT_EQ(cpu_quota("0::/docker/0123\n", root.path()), 3);
  EXPECT_EQ(cpu_quota("0::/../../elsewhere\n", root.path()), 3);
}

TEST(CpuQuota, NonsenseIsNoLimit) {
  const testing::Scratch root;
  for (const char* text : {"", "x y", "0 100000", "-5 100000", "100000", "100000 0", "nan 1"}) {
    put(root.path(), "cpu.max", text);
    for (const char* member : {"0::/", "0::", "", "::", "0", ":\n\n", "0::/a\n0::/b"})
      EXPECT_FALSE(cpu_quota(member, root.path())) << text << " | " << member;
  }
}

}  // namespace
}  // namespace doppler
