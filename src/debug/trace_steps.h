// Lines about steps as they run, for --trace embed, attn, ffn and logits.
#pragma once

#include "base/log.h"
#include "model/executor.h"

namespace doppler {

// What a step is part of.
Trace subject_of(const Step& step);

// The steps that the traces which are on ask for; empty if they ask for none.
TapSteps traced_steps(const Plan& plan);

// Prints a line with the statistics of each step's last row.
Tap trace_tap();

}  // namespace doppler
