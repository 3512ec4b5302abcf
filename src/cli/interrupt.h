// Signals: Ctrl-C as a wish to stop soon, not as the end of the program; a mapped file that is gone as a sentence.
#pragma once

#include <initializer_list>
#include <utility>
#include <vector>

#include <signal.h>

namespace doppler {

// While it lives, these signals only raise a flag: so that unfinished files are removed, or an answer ends and the
// conversation goes on. A wait for input ends, too. One at a time.
class InterruptFlag {
 public:
  explicit InterruptFlag(std::initializer_list<int> signals);
  ~InterruptFlag();
  InterruptFlag(const InterruptFlag&) = delete;
  InterruptFlag& operator=(const InterruptFlag&) = delete;

  bool raised() const;
  bool lower();  // whether it was raised

 private:
  std::vector<std::pair<int, struct sigaction>> before_;
};

// A mapped file that was cut off, or whose disk fails, comes as SIGBUS to whoever reads it: from now on that ends the
// program with the file's name and the exit code of a bad file. Any other SIGBUS does what it did.
void explain_mapped_faults();

}  // namespace doppler
