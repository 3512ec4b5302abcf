// Does this device compute what it should? A few tokens through the first two layers, against the CPU.
#pragma once

#include "engine/loaded_model.h"

namespace doppler {

// Fails (kDevice) with the name of the first step that is wrong. The executor's context is empty afterwards.
void self_test(Executor& executor, const LoadedModel& model);

}  // namespace doppler
