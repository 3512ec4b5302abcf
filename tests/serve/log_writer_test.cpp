// Whoever logs neither fails nor waits, whatever became of the reader.
#include "serve/log_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <utility>

namespace doppler::serve {
namespace {

std::string tell(uint64_t dropped) { return "dropped " + std::to_string(dropped); }

struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  ~Pipe() {
    close_reader();
    ::close(ends[1]);
  }
  void close_reader() {
    if (ends[0] >= 0) ::close(std::exchange(ends[0], -1));
  }
  std::string read(size_t at_least) {
    std::string all(1 << 20, '\0');
    size_t got = 0;
    while (got < at_least) {
      const ssize_t n = ::read(ends[0], all.data() + got, all.size() - got);
      if (n <= 0) break;
      got += static_cast<size_t>(n);
    }
    return all.substr(0, got);
  }
};

TEST(LogWriter, LinesComeInOrder) {
  Pipe pipe;
  {
    LogWriter log(pipe.ends[1], tell);
    for (int i = 0; i < 100; ++i) log.line(std::to_string(i));
  }
  std::string expected;
  for (int i = 0; i < 100; ++i) expected += std::to_string(i) + "\n";
  EXPECT_EQ(pipe.read(expected.size()), expected);
}

TEST(LogWriter, ReaderThatIsGoneCostsLinesOnly) {
  std::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  pipe.close_reader();
  LogWriter log(pipe.ends[1], tell);
  for (int i = 0; i < 10; ++i) log.line("into nothing");
  for (int i = 0; i < 1000 && log.dropped() < 10; ++i) ::usleep(10000);
  EXPECT_EQ(log.dropped(), 10u);
}

TEST(LogWriter, FullDiskCostsLinesOnly) {
  const int full = ::open("/dev/full", O_WRONLY);
  if (full < 0) GTEST_SKIP() << "there is no /dev/full";
  {
    LogWriter log(full, tell);
    log.line("no room");
    for (int i = 0; i < 1000 && log.dropped() < 1; ++i) ::usleep(10000);
    EXPECT_EQ(log.dropped(), 1u);
  }
  ::close(full);
}

// A pipe that nobody reads fills up; what does not fit is dropped, and said once somebody reads again.
TEST(LogWriter, ReaderThatSleepsHoldsUpNobody) {
  Pipe pipe;
  const std::string line(4000, 'x');
  uint64_t dropped = 0;
  std::string said;
  {
    LogWriter log(pipe.ends[1], tell, 64 << 10);
    for (int i = 0; i < 1000; ++i) log.line(line);  // 4 MB into a pipe of 64 KiB and a queue of as much
    dropped = log.dropped();
    EXPECT_GT(dropped, 500u);
    said = pipe.read((1000 - dropped) * (line.size() + 1));
    log.line("last");
    while (said.find("last\n") == std::string::npos) said += pipe.read(1);
  }
  uint64_t told = 0;
  for (size_t at = said.find("dropped "); at != std::string::npos; at = said.find("dropped ", at + 1))
    told += std::stoull(said.substr(at + 8, 20));
  EXPECT_EQ(told, dropped);
}

TEST(LogWriter, ReaderThatSleepsDoesNotHoldUpTheEnd) {
  Pipe pipe;
  const auto begin = std::chrono::steady_clock::now();
  {
    LogWriter log(pipe.ends[1], tell);
    for (int i = 0; i < 100; ++i) log.line(std::string(4000, 'x'));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

}  // namespace
}  // namespace doppler::serve
