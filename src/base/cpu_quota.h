// How much CPU time the control groups of Linux leave a process.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace doppler {

// The least quota, in cores, among the groups that a process is in and those above them; nothing where none is set.
// `membership` is the text of /proc/self/cgroup, `root` the folder where the groups are mounted (/sys/fs/cgroup):
// version 2 (cpu.max) there or in its folder "unified", version 1 (cpu.cfs_quota_us) in a folder for its controllers.
// A group that is not in sight, as in a container that sees only its own below `root`, is passed over.
std::optional<double> cpu_quota(std::string_view membership, const std::filesystem::path& root);

}  // namespace doppler
