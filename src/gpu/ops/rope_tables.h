// Rotary angles without trigonometry in a shader (WGSL's sin and cos are good near zero only): position p turns by
// coarse[p / 256] and then by fine[p % 256], both made here in double. The rope's magnitude is in the coarse table.
#pragma once

#include <vector>

#include "model/model_config.h"

namespace doppler::gpu {

// (cos, sin) pairs: fine [256][head_dim / 2], then coarse [⌈context / 256⌉][head_dim / 2]. One buffer a rope.
std::vector<float> rope_tables(const RopeTable& table, int context);

}  // namespace doppler::gpu
