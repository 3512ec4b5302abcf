// Which values may share memory. A backend runs the plan as groups of steps (a group is one fused kernel, or a single
// step); a value made and used inside one group needs no memory at all. Two values that are alive at the same time
// never share: not even a group's input that dies there and the output it makes.
#pragma once

#include <vector>

#include "model/plan.h"

namespace doppler {

using StepGroups = std::vector<std::vector<int>>;  // indices into Plan::steps, in order, every step once

StepGroups single_steps(const Plan& plan);  // nothing fused

struct BufferPlan {
  std::vector<int> buffer_of;  // by value; -1 for a value that lives inside its group only
  std::vector<int> widths;     // by buffer: the widest value it holds
};

// The last step's output outlives the plan.
BufferPlan share_buffers(const Plan& plan, const StepGroups& groups);

}  // namespace doppler
