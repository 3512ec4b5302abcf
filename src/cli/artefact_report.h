// What convert and synth say at the end, and the way Ctrl-C reaches them.
#pragma once

#include <string>

#include "base/json.h"
#include "convert/artefact.h"

namespace doppler {

// A table: a line for each class and dtype, a total, then notes. `errors` adds the relative error of each line.
std::string to_table(const ArtefactReport& report, bool errors);
Json to_json(const ArtefactReport& report, bool errors);

std::string megabytes(uint64_t bytes);  // "15.1 MB"

// While it lives, Ctrl-C and a polite kill only raise a flag, so that unfinished files are removed before the end.
class InterruptFlag {
 public:
  InterruptFlag();
  ~InterruptFlag();
  InterruptFlag(const InterruptFlag&) = delete;
  InterruptFlag& operator=(const InterruptFlag&) = delete;
  bool raised() const;
};

}  // namespace doppler
