#include "engine/perplexity.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"

namespace doppler {

double surprise(std::span<const float> logits, int32_t token) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float logit : logits) total += std::exp(logit - highest);
  return std::log(total) + highest - logits[static_cast<size_t>(token)];
}

double perplexity(Executor& executor, std::span<const int32_t> tokens, int window) {
  const size_t inputs = static_cast<size_t>(window);
  if (window < 1 || tokens.size() <= inputs) {
    fail({ErrorCode::kUsage, "the text is too short for one window", "perplexity",
          "more than " + std::to_string(window) + " tokens", std::to_string(tokens.size()), ""});
  }
  double sum = 0;
  size_t count = 0;
  for (size_t start = 0; start + inputs < tokens.size(); start += inputs) {
    executor.reset();
    const std::span<const float> logits = executor.forward(tokens.subspan(start, inputs), Logits::kAll);
    const size_t vocab = logits.size() / inputs;
    for (size_t i = 0; i < inputs; ++i) sum += surprise(logits.subspan(i * vocab, vocab), tokens[start + i + 1]);
    count += inputs;
  }
  return std::exp(sum / static_cast<double>(count));
}

}  // namespace doppler
