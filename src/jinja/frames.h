// Which variable a name means. jinja2 decides this when it compiles a template, not when it runs it, and the results
// differ: a name that a frame assigns anywhere belongs to that frame; what it is before the assignment depends on
// whether it was read or assigned first, and whether the assignment stands under a condition. This repeats that
// decision, so that every name of the tree gets a slot.
#pragma once

#include "jinja/ast.h"

namespace doppler::jinja {

// Fills in every Slot and Frame of the program. Fails on an unknown filter or test, as jinja2 does, unless it stands
// under a condition: then it is an error only if it is reached.
void bind_frames(Program& program);

}  // namespace doppler::jinja
