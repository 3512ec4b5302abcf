// How surprised a model is by a text: exp of the mean of −ln p(next token).
#pragma once

#include <cstdint>
#include <span>

#include "model/executor.h"

namespace doppler {

// Windows of `window` inputs starting at window·i, each with a fresh context; every input predicts the token after it.
// Inputs after the last full window are left out. Fails if there is not one window.
double perplexity(Executor& executor, std::span<const int32_t> tokens, int window);

// −ln of the probability that softmax(logits) gives to `token`.
double surprise(std::span<const float> logits, int32_t token);

}  // namespace doppler
