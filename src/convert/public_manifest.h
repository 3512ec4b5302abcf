#pragma once

#include <span>

#include "base/json.h"
#include "format/rdrr.h"

namespace doppler {

// Adds to a manifest that holds a model's numbers what readers of the public format ask of one besides: which norms its
// tensors are, how a session runs and the graph of steps by the names of that engine's kernels. Doppler reads none of
// it but the norms.
void add_public_parts(std::span<const RdrrTensorEntry> tensors, Json& manifest);

}  // namespace doppler
