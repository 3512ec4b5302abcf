// How well a model predicts a text: perplexity, exp of the mean negative log-likelihood of the next token; and how far
// two models' predictions differ.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/executor.h"

namespace doppler {

// Windows of `window` inputs, one every `stride`, each with a fresh context; every input predicts the token after it.
// A window's inputs that an earlier window had count only as context.
struct ScoreOptions {
  int window = 512;
  int stride = 0;  // 0: the window
};

struct TextScore {
  double perplexity = 0;
  size_t tokens = 0;  // predicted
  // Against another model: mean KL divergence Σ p ln(p / q) from its p to this one's q, and how often both would choose
  // the same token.
  double kl = 0, top1_agreement = 0;
};

// Inputs after the last full window are left out. Fails if there is not one window. `against` may be null; it must have
// the same vocabulary. `progress` is told how many tokens are done of how many.
TextScore score_text(Executor& executor, Executor* against, std::span<const int32_t> tokens,
                     const ScoreOptions& options, const std::function<void(size_t, size_t)>& progress = {});

// Its perplexity alone, windows side by side.
double perplexity(Executor& executor, std::span<const int32_t> tokens, int window);

// −ln of the probability that softmax(logits) gives to `token`.
double negative_log_likelihood(std::span<const float> logits, int32_t token);

// What a model would have said instead of a given token, and the negative log-likelihood of the given one.
struct TokenScore {
  int32_t choice = 0;
  double nll = 0;
};
// Of every token but the first, from an empty context. Logits of `batch` tokens are held at once.
std::vector<TokenScore> score_tokens(Executor& executor, std::span<const int32_t> tokens, size_t batch);

// Σ p ln(p / q) for the softmaxes p and q of two rows of logits.
double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits);

}  // namespace doppler
