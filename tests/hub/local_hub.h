// The hub on this machine (hub_server.py), for tests: repositories to fetch from, and what goes wrong.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <sstream>

#include "base/files.h"
#include "base/json.h"
#include "hub/hub.h"
#include "support/scratch.h"

namespace doppler::testing {

class LocalHub {
 public:
  LocalHub() {
    int in[2], out[2];
    if (::pipe(in) != 0 || ::pipe(out) != 0) throw std::runtime_error("pipe");
    server_ = ::fork();
    if (server_ == 0) {
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      for (const int fd : {in[0], in[1], out[0], out[1]}) ::close(fd);
      ::execlp("python3", "python3", DOPPLER_SOURCE_DIR "/tests/hub/hub_server.py", scratch_.path().c_str(), nullptr);
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    ::fcntl(in[1], F_SETFD, FD_CLOEXEC);
    keep_ = in[1];
    FILE* ports = ::fdopen(out[0], "r");
    if (std::fscanf(ports, "%d %d", &hub_port, &cdn_port) != 2) ADD_FAILURE() << "the server did not start";
    std::fclose(ports);
  }
  ~LocalHub() {
    ::close(keep_);
    ::kill(server_, SIGKILL);
    ::waitpid(server_, nullptr, 0);
  }

  std::string endpoint() const { return "http://127.0.0.1:" + std::to_string(hub_port); }
  std::string cdn() const { return "http://127.0.0.1:" + std::to_string(cdn_port); }
  std::filesystem::path repo(const std::string& name = "org/repo") const { return scratch_ / ("repos/" + name); }
  void add(const std::string& file, std::string_view bytes, const std::string& name = "org/repo") const {
    std::filesystem::create_directories((repo(name) / file).parent_path());
    spill(repo(name) / file, bytes);
  }
  void behave(const Json& behaviour) const { write_file_whole(scratch_ / "behaviour.json", behaviour.dump()); }
  void rule(const Json& rule) const { behave({{"rules", Json::array({rule})}}); }
  void behave_well() const { std::filesystem::remove(scratch_ / "behaviour.json"); }

  PullOptions options() const {
    PullOptions options;
    options.settings.hub = scratch_ / "hub";
    options.settings.own = scratch_ / "own";
    options.settings.endpoint = endpoint();
    options.download.piece_bytes = 64 << 10;
    options.download.first_pause = 0.01;
    options.limits.stall_seconds = 2;
    options.say = [this](const std::string& line) { said += line + "\n"; };
    return options;
  }
  std::filesystem::path pull(const std::string& name = "hf:org/repo") const {
    return resolve_model(name, ModelUse::kSource, options());
  }
  std::string refusal(const std::string& name = "hf:org/repo") const {
    return sentence([&] { pull(name); });
  }

  // The requests so far.
  std::vector<Json> log() const {
    wait_until_quiet();
    std::vector<Json> out;
    std::istringstream lines(slurp(scratch_ / "log.jsonl"));
    for (std::string line; std::getline(lines, line);) out.push_back(parse_json(line, "log"));
    return out;
  }
  void forget_log() const {
    wait_until_quiet();
    std::filesystem::remove(scratch_ / "log.jsonl");
  }
  uint64_t sent_by_cdn() const {
    uint64_t sum = 0;
    for (const Json& line : log()) sum += line["at"] == "cdn" ? line["sent"].get<uint64_t>() : 0;
    return sum;
  }
  std::filesystem::path cache() const { return scratch_ / "hub/models--org--repo"; }
  const Scratch& scratch() const { return scratch_; }

  int hub_port = 0, cdn_port = 0;
  mutable std::string said;

 private:
  void wait_until_quiet() const { EXPECT_EQ(HttpClient().get({.url = endpoint() + "/quiet"}).status, 204); }

  Scratch scratch_;
  pid_t server_ = -1;
  int keep_ = -1;
};

// Bytes without a pattern that a wrong offset could hide in.
inline std::string noise(size_t size, uint32_t seed = 1) {
  std::string out(size, '\0');
  for (char& c : out) c = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
  return out;
}

}  // namespace doppler::testing
