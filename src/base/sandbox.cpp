#include "base/sandbox.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/error.h"

#ifdef __linux__
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#endif

namespace doppler {
namespace fs = std::filesystem;

std::vector<fs::path> system_files() {
  // Of /proc what tells of the machine: its folders of other processes hold their environments, and with them keys.
  return {"/usr",
          "/lib",
          "/lib64",
          "/sys",
          "/etc/ld.so.cache",
          "/etc/ld.so.conf",
          "/etc/ld.so.conf.d",
          "/etc/localtime",
          "/etc/nsswitch.conf",
          "/etc/hosts",
          "/proc/cpuinfo",
          "/proc/meminfo",
          "/proc/stat",
          "/proc/devices",
          "/proc/modules",
          "/proc/driver",
          "/proc/sys",
          "/dev/urandom",
          "/dev/null",
          "/dev/zero"};
}

std::vector<fs::path> gpu_files() {
  std::vector<fs::path> files = {"/etc/vulkan", "/etc/glvnd", "/etc/drirc", "/etc/nvidia", "/run/udev", "/opt"};
  for (const char* name : {"VK_ICD_FILENAMES", "VK_DRIVER_FILES", "VK_ADD_DRIVER_FILES"}) {
    const std::string list = std::getenv(name) ? std::getenv(name) : "";
    for (size_t at = 0; at < list.size();) {
      const size_t colon = std::min(list.find(':', at), list.size());
      // The library that such a file names lies beside it, or in the system's folders.
      if (colon > at) files.push_back(fs::absolute(list.substr(at, colon - at)).parent_path());
      at = colon + 1;
    }
  }
  return files;
}

std::vector<fs::path> gpu_devices() {
  std::vector<fs::path> devices = {"/dev/dri", "/dev/kfd", "/dev/null", "/dev/dxg"};
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/dev", ignored)) {
    if (entry.path().filename().string().starts_with("nvidia")) devices.push_back(entry.path());
  }
  return devices;
}

#ifdef __linux__
namespace {

// Landlock's rights of later versions than Debian 12's headers know.
constexpr uint64_t kTruncate = 1u << 14;                          // version 3
constexpr uint64_t kBindTcp = 1, kConnectTcp = 2;                 // version 4
constexpr uint64_t kScopeAbstractSockets = 1, kScopeSignals = 2;  // version 6
constexpr int kRulePort = 2;

struct RulesetRights {
  uint64_t files, tcp, scopes;
};
struct PortRule {
  uint64_t rights, port;
};

constexpr uint64_t kRead = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr uint64_t kWriteFile = LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate;
constexpr uint64_t kOfFiles = LANDLOCK_ACCESS_FS_READ_FILE | kWriteFile | LANDLOCK_ACCESS_FS_EXECUTE;
constexpr uint64_t kMake = LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                           LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SYM |
                           LANDLOCK_ACCESS_FS_REFER;
constexpr uint64_t kAll = kRead | kWriteFile | kMake | LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                          LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO;

[[noreturn]] void refuse(const std::string& what) {
  fail({.code = ErrorCode::kUnsupported,
        .what = what,
        .where = "--sandbox",
        .got = std::strerror(errno),
        .todo = "Run without --sandbox, or under a kernel with Landlock (5.13) and seccomp"});
}

class Ruleset {
 public:
  explicit Ruleset(int version) : files_(kAll) {
    if (version < 2) files_ &= ~static_cast<uint64_t>(LANDLOCK_ACCESS_FS_REFER);
    if (version < 3) files_ &= ~kTruncate;
    // Older kernels know fewer fields of it.
    const RulesetRights rights = {files_, kBindTcp | kConnectTcp, kScopeAbstractSockets | kScopeSignals};
    const size_t size = version < 4 ? 8 : version < 6 ? 16 : sizeof rights;
    fd_ = static_cast<int>(::syscall(SYS_landlock_create_ruleset, &rights, size, 0));
    if (fd_ < 0) refuse("this kernel makes no Landlock rules");
  }
  ~Ruleset() { ::close(fd_); }
  Ruleset(const Ruleset&) = delete;
  Ruleset& operator=(const Ruleset&) = delete;

  void allow(const fs::path& path, uint64_t rights) const {
    const int fd = ::open(path.c_str(), O_PATH | O_CLOEXEC);
    if (fd < 0) return;
    struct stat status {};
    if (::fstat(fd, &status) != 0 || !S_ISDIR(status.st_mode)) rights &= kOfFiles;
    const landlock_path_beneath_attr rule = {.allowed_access = rights & files_, .parent_fd = fd};
    const long failed = ::syscall(SYS_landlock_add_rule, fd_, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    ::close(fd);
    if (failed != 0) refuse(fmt::format("this kernel takes no Landlock rule for {}", path.string()));
  }
  // A folder, and what the links in it lead to: the hub's snapshots are links into its blobs.
  void allow_with_links(const fs::path& path) const {
    allow(path, kRead);
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored)) {
      if (entry.is_symlink(ignored)) allow(entry.path(), kRead);
    }
  }
  void allow_port(uint16_t port) const {
    const PortRule rule = {kBindTcp, port};
    if (::syscall(SYS_landlock_add_rule, fd_, kRulePort, &rule, 0) != 0) refuse("this kernel takes no rule for a port");
  }
  void enforce() const {
    if (::syscall(SYS_landlock_restrict_self, fd_, 0) != 0) refuse("this kernel does not enforce Landlock rules");
  }

 private:
  uint64_t files_;
  int fd_ = -1;
};

// A program of seccomp: system calls that an engine never makes fail with EPERM.
class Filter {
 public:
  Filter() {
#if defined(__x86_64__)
    constexpr uint32_t kArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
    constexpr uint32_t kArch = AUDIT_ARCH_AARCH64;
#else
    constexpr uint32_t kArch = 0;
    errno = ENOSYS;
    refuse("there is no sandbox for this kind of processor");
#endif
    load(offsetof(seccomp_data, arch));
    unless_equal(kArch);
    deny();
    load(offsetof(seccomp_data, nr));
#if defined(__x86_64__)
    add(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1);  // the same calls under other numbers (x32)
    deny();
#endif
  }

  void deny_call(long number) {
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1);
    deny();
  }
  // With any of these bits in argument `index`, of which the kernel takes the lower half.
  void deny_flags(long number, size_t index, uint32_t bits) {
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 4);
    load_argument(index);
    add(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1);
    deny();
    load(offsetof(seccomp_data, nr));
  }
  // Streams of TCP and no other sockets.
  void allow_tcp_sockets() {
    add(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 12);
    load_argument(0);
    add(BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 2, 0);
    add(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 1, 0);
    deny();
    load_argument(1);
    add(BPF_ALU | BPF_AND | BPF_K, static_cast<uint32_t>(~(SOCK_NONBLOCK | SOCK_CLOEXEC)), 0, 0);
    add(BPF_JMP | BPF_JEQ | BPF_K, SOCK_STREAM, 1, 0);
    deny();
    load_argument(2);
    add(BPF_JMP | BPF_JGT | BPF_K, IPPROTO_TCP, 0, 1);  // 0 and IPPROTO_TCP; MPTCP is past Landlock's rules
    deny();
    load(offsetof(seccomp_data, nr));
  }
  void install() {
    add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    const sock_fprog program = {static_cast<unsigned short>(code_.size()), code_.data()};
    if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
      refuse("this kernel takes no seccomp filter");
  }

 private:
  void add(uint32_t operation, uint32_t value, uint8_t if_true, uint8_t if_false) {
    code_.push_back({static_cast<uint16_t>(operation), if_true, if_false, value});
  }
  void load(size_t offset) { add(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset), 0, 0); }
  void load_argument(size_t index) { load(offsetof(seccomp_data, args) + 8 * index); }  // both machines: little endian
  void unless_equal(uint32_t value) { add(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0); }
  void deny() { add(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM, 0, 0); }

  std::vector<sock_filter> code_;
};

void filter_calls(const Sandbox& sandbox) {
  Filter filter;
  for (const long call :
       {SYS_execve, SYS_execveat, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_getfd, SYS_mount,
        SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_move_mount, SYS_open_tree, SYS_fsopen, SYS_fsmount, SYS_fsconfig,
        SYS_setns, SYS_unshare, SYS_bpf, SYS_perf_event_open, SYS_add_key, SYS_request_key, SYS_keyctl, SYS_init_module,
        SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_reboot, SYS_swapon, SYS_swapoff, SYS_userfaultfd,
        SYS_open_by_handle_at, SYS_shmget, SYS_msgget, SYS_semget, SYS_mq_open, SYS_acct, SYS_quotactl,
        SYS_settimeofday, SYS_clock_settime,
        // Its requests pass this filter by.
        SYS_io_uring_setup, SYS_connect}) {
    filter.deny_call(call);
  }
  if (sandbox.listens) {
    filter.allow_tcp_sockets();
    // A first send with this flag connects.
    filter.deny_flags(SYS_sendto, 3, MSG_FASTOPEN);
    filter.deny_flags(SYS_sendmsg, 2, MSG_FASTOPEN);
    filter.deny_flags(SYS_sendmmsg, 3, MSG_FASTOPEN);
  } else {
    filter.deny_call(SYS_socket);
  }
  filter.install();
}

}  // namespace

std::string enter_sandbox(const Sandbox& sandbox) {
  const long version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1) refuse("this kernel has no Landlock");
  const Ruleset rules(static_cast<int>(version));
  // A rule is for an inode, and this folder's lives only as long as somebody holds it: as long as the process,
  // therefore.
  [[maybe_unused]] static const int own_folder = ::open("/proc/self", O_PATH | O_CLOEXEC);
  rules.allow("/proc/self", kRead);
  for (const fs::path& path : sandbox.readable) rules.allow_with_links(path);
  for (const fs::path& path : sandbox.writable) rules.allow(path, kRead | kWriteFile | kMake);
  for (const fs::path& path : sandbox.devices) rules.allow(path, kRead | kWriteFile);
  if (version >= 4 && sandbox.listens) rules.allow_port(sandbox.port);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) refuse("this kernel lets programs gain privileges");
  rules.enforce();
  filter_calls(sandbox);
  std::string missing;
  const auto lacks = [&](int since, const char* what) {
    if (version < since) missing += fmt::format("{}{}", missing.empty() ? "" : "; ", what);
  };
  lacks(2, "files cannot be moved between folders, not even in writable ones");
  lacks(3, "files elsewhere can be cut off");
  if (sandbox.listens) lacks(4, "it can listen at other ports, too");
  lacks(6, "signals reach this user's other processes");
  return fmt::format("Landlock {} and seccomp{}", version, missing.empty() ? "" : "; too old for all: " + missing);
}

#else

std::string enter_sandbox(const Sandbox&) {
  fail({.code = ErrorCode::kUnsupported,
        .what = "there is no sandbox on this system",
        .where = "--sandbox",
        .expected = "Linux with Landlock and seccomp",
        .todo = "Run without --sandbox, in a container or under a user of its own"});
}

#endif

}  // namespace doppler
