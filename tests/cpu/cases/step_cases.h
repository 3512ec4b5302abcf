// Every operation on its own, on every instruction set of this machine, one list for two uses: the tests and `doppler
// doctor`. Small models run with every step tapped; the reference operation, given what the executor gave the step,
// must come to the same output. So no error of an earlier step hides or excuses one of a later step, and a router's
// close call changes nothing.
#pragma once

#include <string>
#include <vector>

#include "cpu/isa.h"
#include "format/dtype.h"
#include "model/model_config.h"

namespace doppler::cpu {

struct StepCase {
  ModelConfig config;
  DType type;  // of the matrices
  const Kernels* kernels;
  int block;     // tokens of a pass
  bool prefill;  // with what multiplies many tokens, or with what multiplies one
};

// For one table of kernels: all models, types and ways; or so many of them that every operation, every type and every
// way is there, which takes a second.
std::vector<StepCase> step_cases(const Kernels& kernels, bool all);

struct StepResult {
  std::string step, operation;
  double error = 0, bound = 0;  // ‖got − expected‖ / ‖expected‖, and what rounding explains of it
  bool pass() const { return error <= bound; }  // not with NaN
};
std::vector<StepResult> check_steps(const StepCase& step_case);

}  // namespace doppler::cpu
