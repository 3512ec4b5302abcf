// Which executor runs a model.
#pragma once

#include "engine/loaded_model.h"
#include "model/executor.h"

namespace doppler {

struct BackendChoice {
  std::string name;   // "cpu", "webgpu" or "ref"
  std::string about;  // for people: which device, or why not another
};

// `asked` is auto, cpu, webgpu or ref; auto takes a hardware GPU if there is one, else the CPU. Fails with a sentence
// for any other word.
BackendChoice choose_backend(const std::string& asked, int device);

// The model must outlive the executor.
std::unique_ptr<Executor> make_executor(const LoadedModel& model, const std::string& backend,
                                        const ExecutorOptions& options);

// Does this device compute what it should? A few tokens through the first two layers, against the CPU. Fails (kDevice)
// with the name of the first step that is wrong. The executor's context is empty afterwards.
void self_test(Executor& executor, const LoadedModel& model);

}  // namespace doppler
