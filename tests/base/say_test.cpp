#include "base/say.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace doppler {
namespace {

TEST(Visible, LeavesTextAlone) {
  for (const std::string text : {"", "gemma-3 1B (Q4_K_M)", "Grüße, 世界 🐈", "C:\\n"}) EXPECT_EQ(visible(text), text);
}

TEST(Visible, SpellsOutWhatSpeaksToATerminal) {
  EXPECT_EQ(visible("a\033[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(visible("a\r\n\tb\x7f"), "a\\r\\n\\tb\\x7f");
  EXPECT_EQ(visible(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(visible("\xC2\x9B"
                    "31m"),
            "\\x9b31m");  // U+009B, an escape sequence's beginning in one character
  EXPECT_EQ(visible("\x9B"
                    "31m\xC3"),
            "\\x9b31m\\xc3");  // the same as a byte
  EXPECT_EQ(visible("\xE2\x80\xAEgpj.exe"), "\\u202egpj.exe");
  EXPECT_EQ(visible("\xE2\x81\xA6"), "\\u2066");
}

// Standard error as a device that takes nothing.
class FullStderr {
 public:
  FullStderr() {
    before_ = ::dup(STDERR_FILENO);
    const int full = ::open("/dev/full", O_WRONLY);
    ::dup2(full, STDERR_FILENO);
    ::close(full);
  }
  ~FullStderr() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
  }

 private:
  int before_;
};

TEST(Say, NeverFails) {
  const FullStderr full;
  say("{}", std::string(100'000, 'x'));
  say_dim("{}", 1);
  show_status("x");
  write_stderr("x\n");
}

TEST(Say, WritesALineWithTheProgramsName) {
  ::testing::internal::CaptureStderr();
  say("{} of {}\033", 1, "two\n");
  say_dim("[{}]", "x\033[0m");  // no terminal here
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "doppler: 1 of two\\n\\x1b\n[x\\x1b[0m]\n");
}

}  // namespace
}  // namespace doppler
