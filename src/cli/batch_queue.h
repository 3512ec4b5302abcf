// doppler batch submit, work and collect.
#pragma once

#include <memory>

#include "cli/options.h"

namespace doppler {

// `worked` becomes true where one of them was named, before the callback of `batch` is called.
void add_batch_queue(Verb batch, const std::shared_ptr<bool>& worked);

}  // namespace doppler
