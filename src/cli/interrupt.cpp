#include "cli/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <cstring>

#include "base/error.h"
#include "base/files.h"

namespace doppler {
namespace {

std::atomic<bool> interrupted{false};
void on_interrupt(int) { interrupted = true; }

// Only what a handler may call; what cannot be said is not said.
void say_now(const char* text) {
  if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

void on_mapped_fault(int signal, siginfo_t* info, void*) {
  const char* file = mapped_file_at(info->si_addr);
  if (!file) {
    ::signal(signal, SIG_DFL);  // the instruction runs again, and ends the program
    return;
  }
  say_now("doppler: the file was cut off, or its disk failed, while it was read (");
  say_now(file);
  say_now("). Check it with doppler verify, or fetch it again\n");
  ::_exit(exit_code(ErrorCode::kFile));
}

}  // namespace

InterruptFlag::InterruptFlag(std::initializer_list<int> signals) {
  interrupted = false;
  for (const int signal : signals) {
    struct sigaction action {
    }, before{};
    action.sa_handler = on_interrupt;  // without SA_RESTART, so that a wait for a line ends
    ::sigaction(signal, nullptr, &before);
    if (signal == SIGHUP && before.sa_handler == SIG_IGN) continue;  // nohup: the work goes on without a terminal
    ::sigaction(signal, &action, nullptr);
    before_.emplace_back(signal, before);
  }
}

InterruptFlag::~InterruptFlag() {
  for (const auto& [signal, before] : before_) ::sigaction(signal, &before, nullptr);
}

bool InterruptFlag::raised() const { return interrupted; }
bool InterruptFlag::lower() { return interrupted.exchange(false); }

void explain_mapped_faults() {
  struct sigaction action {};
  action.sa_sigaction = on_mapped_fault;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace doppler
