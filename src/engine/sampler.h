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
  bool finite() const { return finite_; }  // were all logits of the last draw?

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };
  Sampling options_;
  bool finite_ = true;
  std::vector<float> penalised_;
  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
};

struct Likeliest {
  int32_t id = 0;      // of the highest logit; ties go to the lowest. NaNs never win against a number
  bool finite = true;  // all logits are
};
Likeliest likeliest(std::span<const float> logits);
inline int32_t argmax(std::span<const float> logits) { return likeliest(logits).id; }

}  // namespace doppler
