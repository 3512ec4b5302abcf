// Each question is asked by a child process from inside a sandbox of its own, and once more without one: a test of what
// is refused must be able to fail.
#include "base/sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/landlock.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "support/scratch.h"

namespace doppler {
namespace {

using Question = std::function<bool()>;  // false: errno says why not

constexpr int kNoSandbox = 254;

// 0, or the errno with which the question failed.
int asked(const Question& question, const Sandbox* sandbox = nullptr) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (sandbox != nullptr) {
      try {
        enter_sandbox(*sandbox);
      } catch (const Failure&) {
        ::_exit(kNoSandbox);
      }
    }
    ::_exit(question() ? 0 : errno);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

long landlock_version() { return ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION); }

class SandboxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Sandbox nothing;
    if (landlock_version() < 1 || asked([] { return true; }, &nothing) == kNoSandbox)
      GTEST_SKIP() << "this kernel has no Landlock or no seccomp";
    fs::create_directories(scratch_ / "model");
    fs::create_directories(scratch_ / "out");
    spill(scratch_ / "model/shard", "bytes");
    spill(scratch_ / "secret", "key");
    fs::create_symlink(scratch_ / "blob", scratch_ / "model/linked");
    spill(scratch_ / "blob", "more bytes");
    sandbox_.readable = system_files();
    sandbox_.readable.push_back(scratch_ / "model");
    sandbox_.writable.push_back(scratch_ / "out");
  }

  Question opens(const std::string& name, int flags) {
    return [path = scratch_ / name, flags] { return ::open(path.c_str(), flags, 0600) >= 0; };
  }
  void expect_allowed(const char* what, const Question& question) { EXPECT_EQ(asked(question, &sandbox_), 0) << what; }
  void expect_refused(const char* what, const Question& question, int with) {
    EXPECT_EQ(asked(question), 0) << what << " without a sandbox";
    EXPECT_EQ(asked(question, &sandbox_), with) << what;
  }

  Scratch scratch_;
  Sandbox sandbox_;
};

bool starts_true() {
  char* const words[] = {const_cast<char*>("true"), nullptr};
  ::execv("/bin/true", words);
  return false;
}

// An IPv4 stream that listens on loopback, at a port of the system's choice.
int listening(uint16_t* port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (fd < 0 || ::bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(fd, 1) != 0) return -1;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  *port = ntohs(address.sin_port);
  return fd;
}

Question binds(uint16_t port) {
  return [port] {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    if (fd < 0) return false;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 && ::listen(fd, 1) == 0;
  };
}

// Ports that nobody listens at just now.
std::pair<uint16_t, uint16_t> free_ports() {
  uint16_t first = 0, second = 0;
  const int a = listening(&first), b = listening(&second);
  ::close(a);
  ::close(b);
  return {first, second};
}

TEST_F(SandboxTest, ReadsTheModelAndWhatItsLinksLeadTo) {
  expect_allowed("a shard", opens("model/shard", O_RDONLY));
  expect_allowed("a link out of the folder", opens("model/linked", O_RDONLY));
  expect_allowed("the folder", [&] { return !fs::is_empty(scratch_ / "model"); });
}

TEST_F(SandboxTest, ReadsNothingElse) {
  expect_refused("a file beside the model", opens("secret", O_RDONLY), EACCES);
  expect_refused("its folder", opens(".", O_RDONLY), EACCES);
  expect_refused(
      "another process's environment",
      [parent = ::getpid()] { return ::open(("/proc/" + std::to_string(parent) + "/environ").c_str(), O_RDONLY) >= 0; },
      EACCES);
}

TEST_F(SandboxTest, ReadsWhatTheKernelTellsOfItselfAndTheMachine) {
  for (const char* path : {"/proc/self/status", "/proc/self/cgroup", "/proc/thread-self/stat", "/proc/meminfo"})
    expect_allowed(path, [path] { return ::open(path, O_RDONLY) >= 0; });
}

TEST_F(SandboxTest, WritesOnlyWhereItMay) {
  expect_allowed("a file in the target's folder", opens("out/new", O_WRONLY | O_CREAT | O_TRUNC));
  expect_allowed("its other name", [&] {
    std::error_code ec;
    fs::rename(scratch_ / "out/new", scratch_ / "out/last", ec);
    return !ec && fs::remove(scratch_ / "out/last", ec);
  });
  expect_refused("the model", opens("model/shard", O_WRONLY), EACCES);
  expect_refused("a file beside it", opens("model/new", O_WRONLY | O_CREAT), EACCES);
  if (landlock_version() >= 3)
    expect_refused(
        "its size", [&] { return ::truncate((scratch_ / "model/shard").c_str(), 5) == 0; }, EACCES);
}

TEST_F(SandboxTest, StartsNoProgramAndLooksIntoNoProcess) {
  expect_refused("a program", starts_true, EPERM);
  expect_refused(
      "tracing", [] { return ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0; }, EPERM);
  expect_allowed("threads", [] {
    bool ran = false;
    std::thread([&] { ran = true; }).join();
    return ran;
  });
}

TEST_F(SandboxTest, HasNoNetwork) {
  for (const int kind : {SOCK_STREAM, SOCK_DGRAM}) {
    for (const int family : {AF_INET, AF_UNIX})
      expect_refused(
          "a socket", [=] { return ::socket(family, kind, 0) >= 0; }, EPERM);
  }
}

TEST_F(SandboxTest, AServerListensAtItsPortAndConnectsToNothing) {
  const auto [own, other] = free_ports();
  sandbox_.listens = true;
  sandbox_.port = own;
  expect_allowed("its port", binds(own));
  if (landlock_version() >= 4) expect_refused("another port", binds(other), EACCES);
  for (const int family : {AF_INET, AF_UNIX})
    expect_refused(
        "datagrams", [=] { return ::socket(family, SOCK_DGRAM, 0) >= 0; }, EPERM);
  expect_refused(
      "a stream of this machine", [] { return ::socket(AF_UNIX, SOCK_STREAM, 0) >= 0; }, EPERM);

  uint16_t port = 0;
  const int listener = listening(&port);
  ASSERT_GE(listener, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  expect_refused(
      "a connection",
      [=] {
        const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
        return fd >= 0 && (::connect(fd, to, sizeof address) == 0 || errno == EINPROGRESS);
      },
      EPERM);
  expect_refused(
      "a connection with the first bytes",
      [=] {
        const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
        return fd >= 0 && ::sendto(fd, "x", 1, MSG_FASTOPEN | MSG_NOSIGNAL, to, sizeof address) == 1;
      },
      EPERM);
  ::close(listener);
}

TEST_F(SandboxTest, HoldsAcrossForkAndThreads) {
  expect_refused(
      "a child's look", [&] { return asked(opens("secret", O_RDONLY)) == 0 || (errno = EACCES, false); }, EACCES);
  expect_refused(
      "a thread's program",
      [] {
        int code = 0;
        std::thread([&] { code = asked(starts_true); }).join();
        errno = code;
        return code == 0;
      },
      EPERM);
}

}  // namespace
}  // namespace doppler
