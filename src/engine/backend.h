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

// Divided among all ranks where the program runs as several (ranks.h); nothing is verified then, since each rank reads
// its own layers alone. Otherwise: the model must outlive the executor. With `verify` an artefact's bytes are held
// against its hashes meanwhile, where they are not known (shard_check.h): fails where they are others.
std::unique_ptr<Executor> make_executor(const LoadedModel& model, const std::string& backend,
                                        const ExecutorOptions& options, bool verify = true);

// Of a backend by its name, "cpu", "webgpu" or "ref", for a plan or a stage of one.
std::unique_ptr<Executor> make_local_executor(const std::string& backend, const ModelConfig& config, const Plan& plan,
                                              const Weights& weights, const ExecutorOptions& options);

// Has the executor print the lines about steps that --trace asks for, if it asks for any; of the first sequence of a
// batch.
void trace_steps(Executor& executor, const LoadedModel& model);

// The same, and `also` sees those of its steps.
void trace_steps(Executor& executor, const LoadedModel& model, const Tap& also, const TapSteps& steps);

// Memory that this process could still have, in its container, too; the largest number where nobody says.
uint64_t available_memory();
// Bytes in live buffers of GPUs, of all models of this process.
uint64_t gpu_buffer_bytes();
// Bytes for the keys and values of `sequences` full contexts where nobody says how many
// (ExecutorOptions::cache_memory): as many as they need, but no more than half of what is left of `available` beside
// the weights. 0, which is a few full contexts, where that is less; and for a GPU, since WebGPU does not tell how much
// memory a device has.
uint64_t default_cache_memory(const LoadedModel& model, const BackendChoice& backend, int context, int sequences,
                              uint64_t available);

// Does this device compute what it should? A few tokens through the first two layers, against the CPU. Fails (kDevice)
// with the name of the first step that is wrong. The executor's context is empty afterwards.
void self_test(Executor& executor, const LoadedModel& model);

}  // namespace doppler
