// Which of the kernels' cases `doppler test correctness` and `doppler bench kernels` take, and on which GPU.
#pragma once

#include <string>

#include "base/error.h"
#include "cli/options.h"
#include "gpu/cases/kernel_cases.h"

namespace doppler {

struct KernelChoice {
  std::string filter;
  int device = -1;
  bool plain = false, json = false;

  void declare(Verb verb) {
    verb.add_option("--filter", filter, "Only cases whose name holds this text, such as q4_k");
    verb.add_option("--device", device, "Which GPU, as `doppler devices` numbers them");
  }
  bool takes(const std::string& name) const { return name.find(filter) != std::string::npos; }
  [[noreturn]] void fail_without_cases() const {
    fail({.code = ErrorCode::kUsage,
          .what = "no case matches",
          .where = "--filter",
          .got = filter,
          .todo = "leave --filter out to see all cases"});
  }
};

}  // namespace doppler
