// When the nodes of a pass were done, for the timeline: taken by one thread, which waits for the others at the end of
// each, and written when the pass is over.
#pragma once

#include <string>
#include <vector>

#include "cpu/program.h"

namespace doppler::cpu {

class NodeTimes {
 public:
  NodeTimes() = default;
  NodeTimes(const Program& program, const Plan& plan);

  void start();              // of the nodes from here on
  void end_of(size_t node);  // which began when the one before ended
  void write();              // what was taken, and the layers around it

 private:
  struct Interval {
    uint64_t begin, end;
  };
  std::vector<std::string> events_;  // by node: see timeline::event()
  std::vector<int> layers_;          // by node; -1 outside
  std::vector<std::string> layer_events_;
  std::vector<std::pair<size_t, Interval>> taken_;
  uint64_t last_ = 0;
};

}  // namespace doppler::cpu
