#include "cli/interrupt.h"

#include <atomic>

namespace doppler {
namespace {

std::atomic<bool> interrupted{false};
void on_interrupt(int) { interrupted = true; }

}  // namespace

InterruptFlag::InterruptFlag(std::initializer_list<int> signals) {
  interrupted = false;
  for (const int signal : signals) {
    struct sigaction action {
    }, before{};
    action.sa_handler = on_interrupt;  // without SA_RESTART, so that a wait for a line ends
    ::sigaction(signal, &action, &before);
    before_.emplace_back(signal, before);
  }
}

InterruptFlag::~InterruptFlag() {
  for (const auto& [signal, before] : before_) ::sigaction(signal, &before, nullptr);
}

bool InterruptFlag::raised() const { return interrupted; }
bool InterruptFlag::lower() { return interrupted.exchange(false); }

}  // namespace doppler
