// Files that fail the program: cut off while it reads them, without an end, or wanted by two; and signals meanwhile.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include <gmock/gmock.h>

#include "support/program.h"

namespace doppler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The program with its output in files of a folder, while the test does something to it.
class Running {
 public:
  explicit Running(std::vector<std::string> arguments, bool without_hangups = false) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    std::vector<char*> words = {const_cast<char*>("doppler")};
    for (std::string& word : arguments) words.push_back(word.data());
    words.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[0], 0);
      ::dup2(::open((said_ / "out").c_str(), O_CREAT | O_WRONLY, 0600), 1);
      ::dup2(::open((said_ / "err").c_str(), O_CREAT | O_WRONLY, 0600), 2);
      if (without_hangups) ::signal(SIGHUP, SIG_IGN);
      ::execv(DOPPLER_BINARY_DIR "/doppler", words.data());
      ::_exit(127);
    }
    ::close(ends[0]);
    input_ = ends[1];
  }
  ~Running() {
    if (input_ >= 0) ::close(input_);
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
  }

  // Also where nobody listens any more.
  void say(const std::string& line) const {
    const auto before = ::signal(SIGPIPE, SIG_IGN);
    EXPECT_TRUE(::write(input_, line.data(), line.size()) > 0 || errno == EPIPE);
    ::signal(SIGPIPE, before);
  }
  void send(int signal) const { ::kill(pid_, signal); }
  pid_t pid() const { return pid_; }
  std::string out() const { return slurp(said_ / "out"); }
  std::string err() const { return slurp(said_ / "err"); }

  // Until it is so, the program has ended, or a minute has passed.
  void wait_until(const std::function<bool()>& so) {
    for (int i = 0; i < 6000 && !so(); ++i) {
      siginfo_t ended{};
      ::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT);
      if (ended.si_pid != 0) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_TRUE(so()) << out() << err();
  }
  int exit_code() {
    ::close(std::exchange(input_, -1));
    int status = -1;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  Scratch said_;
  pid_t pid_ = -1;
  int input_ = -1;
};

// The reference backend computes from the mapped weights; the fast one may have packed them all.
void expect_cut_off_in_use(const fs::path& model, const fs::path& file) {
  Running chat({"run", model.string(), "--chat", "--backend", "ref", "--max-tokens", "2"});
  chat.say("Hello\n");
  chat.wait_until([&] { return !chat.out().empty(); });
  fs::resize_file(file, 0);
  chat.say("Hello again\n");
  EXPECT_EQ(chat.exit_code(), 3) << chat.err();
  EXPECT_THAT(chat.err(), HasSubstr("cut off, or its disk failed, while it was read (" + file.string() + ")"));
}

TEST(FailingFiles, AFileThatIsCutOffInUseIsNamed) {
  const Scratch scratch;
  const fs::path folder = scratch / "tiny", gguf = scratch / "tiny.gguf";
  fs::copy(DOPPLER_SOURCE_DIR "/models/tiny", folder);
  expect_outcome("convert '" + folder.string() + "' '" + gguf.string() + "'", 0, "");
  expect_cut_off_in_use(folder, folder / "shard_00000.bin");
  expect_cut_off_in_use(gguf, gguf);
}

bool has_partial(const Scratch& scratch) {
  for (const std::string& name : scratch.names()) {
    if (name.ends_with(".partial")) return true;
  }
  return false;
}

TEST(FailingFiles, WhenTheTerminalIsClosedNothingIsLeftOfAConversion) {
  const Scratch scratch;
  Running synth({"synth", "gemma-3-1b", (scratch / "m").string(), "--threads", "1"});
  synth.wait_until([&] { return has_partial(scratch); });
  expect_outcome("synth gemma-3-1b '" + (scratch / "m").string() + "'", 3, "is being written already");
  synth.send(SIGHUP);
  EXPECT_EQ(synth.exit_code(), 3);
  EXPECT_THAT(synth.err(), HasSubstr("interrupted"));
  EXPECT_THAT(scratch.names(), ElementsAre());
}

TEST(FailingFiles, NohupKeepsAConversionGoing) {
  const Scratch scratch;
  Running synth({"synth", "gemma-3-1b", (scratch / "m").string(), "--threads", "1"}, /*without_hangups=*/true);
  synth.wait_until([&] { return has_partial(scratch); });
  const std::string status = slurp("/proc/" + std::to_string(synth.pid()) + "/status");
  const size_t ignored = status.find("SigIgn:");
  ASSERT_NE(ignored, std::string::npos);
  EXPECT_TRUE(std::stoull(status.substr(ignored + 7), nullptr, 16) & (1ull << (SIGHUP - 1))) << status;
  synth.send(SIGTERM);
  EXPECT_EQ(synth.exit_code(), 3);
  EXPECT_THAT(scratch.names(), ElementsAre());
}

TEST(FailingFiles, ModelsWithoutAnEndAreRefused) {
  const Scratch scratch;
  for (const char* folder : {"pipe", "zero", "long", "shard", "checkpoint"}) fs::create_directory(scratch / folder);
  ASSERT_EQ(::mkfifo((scratch / "pipe/manifest.json").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", scratch / "zero/manifest.json");
  testing::spill(scratch / "long/manifest.json", "\"");
  fs::resize_file(scratch / "long/manifest.json", 1'000'000'000);
  fs::copy(DOPPLER_SOURCE_DIR "/models/tiny/manifest.json", scratch / "shard");
  ASSERT_EQ(::mkfifo((scratch / "shard/shard_00000.bin").c_str(), 0600), 0);
  testing::spill(scratch / "checkpoint/model.safetensors", "");
  ASSERT_EQ(::mkfifo((scratch / "checkpoint/config.json").c_str(), 0600), 0);
  const auto path = [&](const char* name) { return (scratch / name).string(); };
  for (const char* verb : {"inspect", "verify"}) {
    expect_outcome(verb + (" '" + path("pipe") + "'"), 3, "expected a regular file, got a pipe");
    expect_outcome(verb + (" '" + path("pipe/manifest.json") + "'"), 3, "got a pipe");
    expect_outcome(verb + (" '" + path("zero") + "'"), 3, path("zero/manifest.json"));
    expect_outcome(verb + (" '" + path("long") + "'"), 3, "got 1000000000 bytes");
    expect_outcome(verb + (" '" + path("checkpoint") + "'"), 3, "checkpoint/config.json): expected a regular file");
    expect_outcome(verb + std::string(" /dev/zero"), 3, "/dev/zero");
  }
  expect_outcome("inspect '" + path("shard") + "'", 4, "shard_00000.bin is missing or unreadable");
  expect_outcome("verify '" + path("shard") + "'", 1, "shard_00000.bin is missing or unreadable");
}

TEST(FailingFiles, APipeIsAPrompt) {
  const testing::Outcome outcome =
      testing::call("run models/tiny --backend cpu --max-tokens 2 --prompt-file -", "What color is the sky?");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  expect_outcome("tokenize models/tiny - </dev/zero", 3, "the text is too long");
}

}  // namespace
}  // namespace doppler
