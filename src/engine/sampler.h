// From logits to the next token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/sampling.h"

namespace doppler {

// Fails with a sentence if a value makes no sense (negative temperature, top_p outside 0 … 1, …).
void check(const Sampling& sampling);

class Sampler {
 public:
  explicit Sampler(const Sampling& sampling);

  // The order is: repetition penalty, temperature, top-k, top-p, min-p, draw. `text` are all tokens so far, prompt
  // included; `index` numbers the draw: the same (seed, index, logits) give the same token.
  int32_t sample(std::span<const float> logits, std::span<const int32_t> text, uint64_t index);

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };
  Sampling options_;
  std::vector<float> penalised_;
  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
};

// The highest logit's index; ties go to the lowest. NaNs never win against a number.
int32_t argmax(std::span<const float> logits);

}  // namespace doppler
