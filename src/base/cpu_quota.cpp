#include "base/cpu_quota.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

namespace doppler {
namespace fs = std::filesystem;
namespace {

// The first two words of a file, or of two files in a row; empty where there are none.
struct Words {
  std::string quota, period;
};

Words read_v2(const fs::path& group) {
  Words words;
  std::ifstream(group / "cpu.max") >> words.quota >> words.period;
  return words;
}

Words read_v1(const fs::path& group) {
  Words words;
  std::ifstream(group / "cpu.cfs_quota_us") >> words.quota;
  std::ifstream(group / "cpu.cfs_period_us") >> words.period;
  return words;
}

// Microseconds of CPU time in each period of microseconds; "max" and -1 say that there is no limit.
void lower(std::optional<double>& least, const Words& words) {
  const double quota = std::strtod(words.quota.c_str(), nullptr), period = std::strtod(words.period.c_str(), nullptr);
  if (!(quota > 0) || !(period > 0)) return;
  if (!least || quota / period < *least) least = quota / period;
}

bool has_word(std::string_view list, std::string_view word) {
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    if (list.substr(at, comma - at) == word) return true;
    at = comma + 1;
  }
  return false;
}

}  // namespace

std::optional<double> cpu_quota(std::string_view membership, const fs::path& root) {
  std::optional<double> least;
  const auto climb = [&](const fs::path& mount, std::string_view group, Words (*read)(const fs::path&)) {
    fs::path inner = (fs::path("/") / group).lexically_normal().relative_path();
    for (; !inner.empty(); inner = inner.parent_path()) lower(least, read(mount / inner));
    lower(least, read(mount));
  };
  for (size_t at = 0; at < membership.size();) {  // lines "4:cpu,cpuacct:/group", of version 2 "0::/group"
    const size_t end = std::min(membership.find('\n', at), membership.size());
    const std::string_view line = membership.substr(at, end - at);
    at = end + 1;
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    if (controllers.empty()) {
      climb(root, group, read_v2);
      climb(root / "unified", group, read_v2);
    } else if (has_word(controllers, "cpu")) {
      climb(root / controllers, group, read_v1);
      if (controllers != "cpu") climb(root / "cpu", group, read_v1);
    }
  }
  return least;
}

}  // namespace doppler
