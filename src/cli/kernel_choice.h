// Which of the kernels' cases `doppler test correctness` and `doppler bench kernels` take, and on which GPU.
#pragma once

#include <string>

#include "base/error.h"
#include "cli/options.h"
#include "gpu/cases/kernel_cases.h"

namespace doppler {

// Does a case's name hold the filter? Marks between words and capitals do not count: q4k finds q4_k.
bool matches_filter(const std::string& name, const std::string& filter);

struct KernelChoice {
  std::string filter;
  int device = -1;
  bool plain = false, json = false;

  void declare(Verb verb) {
    verb.add_option("--filter", filter, "Only cases whose name holds this text: q4_k, or q4k");
    verb.add_option("--device", device, "Which GPU, as `doppler devices` numbers them");
  }
  bool takes(const std::string& name) const { return matches_filter(name, filter); }
  [[noreturn]] void fail_without_cases() const {
    fail({.code = ErrorCode::kUsage,
          .what = "no case matches",
          .where = "--filter",
          .got = filter,
          .todo = "leave --filter out to see all cases"});
  }
};

// What `doppler bench kernels` does.
struct KernelSpeeds : KernelChoice {
  bool checked = false;
  std::string html = {};  // a file
};
void print_kernel_speeds(const KernelSpeeds& wanted);

}  // namespace doppler
