// Runs a Plan with the reference operations: slow, simple, the truth the others are held against.
#pragma once

#include <functional>

#include "model/executor.h"

namespace doppler {

// Weights' bytes must outlive the executor.
std::unique_ptr<Executor> make_ref_executor(const ModelConfig& config, const Plan& plan, const Weights& weights,
                                            const ExecutorOptions& options);

// What happens to a position's new key and value [kv_heads · head_dim] on the way into the cache: nothing, or what
// another backend's cache would round away, to see what that costs a model.
using CacheRounding = std::function<void(const Attention& op, std::span<float> key, std::span<float> value)>;

std::unique_ptr<Executor> make_rounding_ref_executor(const ModelConfig& config, const Plan& plan,
                                                     const Weights& weights, const ExecutorOptions& options,
                                                     CacheRounding rounding);

}  // namespace doppler
