// What a verb that runs a model does first where `mpirun` started the program as several ranks.
#pragma once

#include <cstdint>
#include <string>

namespace doppler {

// Meets the other ranks. True: this is not the first of them, it ran its layers as long as the first wanted, and the
// verb is done. `model` is what local_model() takes. `sandbox` as given on the command line.
bool worked_as_other_rank(const std::string& model, const std::string& backend, int device, int threads,
                          uint64_t gpu_memory, bool sandbox = false);

// Fails where there are several ranks and several models: the other ranks have opened the first.
void check_one_model(size_t models);

}  // namespace doppler
