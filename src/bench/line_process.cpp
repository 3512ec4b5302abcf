#include "bench/line_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace doppler {
namespace {
constexpr int kNotFound = 127;  // a shell says it so, too
}

LineProcess::LineProcess(const std::vector<std::string>& command, const std::filesystem::path& folder)
    : name_(command.front()) {
  int to_child[2], from_child[2];
  if (::pipe2(to_child, O_CLOEXEC) != 0 || ::pipe2(from_child, O_CLOEXEC) != 0) {
    fail({.code = ErrorCode::kFile, .what = "no pipe to another process", .where = name_, .got = std::strerror(errno)});
  }
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(to_child[0], STDIN_FILENO);
    ::dup2(from_child[1], STDOUT_FILENO);
    const int nowhere = ::open("/dev/null", O_WRONLY);
    if (nowhere >= 0 && std::getenv("DOPPLER_PEER_STDERR") == nullptr) ::dup2(nowhere, STDERR_FILENO);
    if (::chdir(folder.c_str()) != 0) ::_exit(126);
    ::execvp(arguments[0], arguments.data());
    ::_exit(kNotFound);
  }
  ::close(to_child[0]);
  ::close(from_child[1]);
  in_ = to_child[1];
  out_ = from_child[0];
  if (pid_ < 0)
    fail(
        {.code = ErrorCode::kFile, .what = "a process cannot be started", .where = name_, .got = std::strerror(errno)});
}

LineProcess::~LineProcess() {
  ::close(in_);
  ::close(out_);
  if (pid_ > 0) {
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
}

Json LineProcess::ask(const Json& request) {
  const auto died = [&] {
    int status = 0;
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNotFound) {
      fail({.code = ErrorCode::kFile,
            .what = "a program that is needed cannot be started",
            .where = name_,
            .todo = "Install it"});
    }
    fail({.code = ErrorCode::kFile,
          .what = "the other process ended without an answer",
          .where = name_,
          .todo = "DOPPLER_PEER_STDERR=1 shows what it says"});
  };
  // Its end must not end us; only this write could meet it.
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);
  const std::string line = request.dump() + "\n";
  size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t n = ::write(in_, line.data() + sent, line.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  ::sigaction(SIGPIPE, &before, nullptr);
  if (sent < line.size()) died();
  for (;;) {
    const size_t end = pending_.find('\n');
    if (end != std::string::npos) {
      const std::string answer = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      Json json = parse_json(answer, name_);
      if (const Json* error = find(json, "error")) {
        fail({.code = ErrorCode::kUnsupported,
              .what = "the other process could not do it",
              .where = name_,
              .got = error->is_string() ? error->get<std::string>() : brief(*error)});
      }
      return json;
    }
    char buffer[65536];
    const ssize_t n = ::read(out_, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) died();
    pending_.append(buffer, static_cast<size_t>(n));
  }
}

uint64_t LineProcess::peak_bytes() const {
  std::ifstream in(fmt::format("/proc/{}/status", pid_));
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("VmHWM:")) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  }
  return 0;
}

}  // namespace doppler
