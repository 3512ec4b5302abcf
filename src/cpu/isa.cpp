#include "cpu/isa.h"

#include <cstdlib>

#include "base/error.h"

namespace doppler::cpu {
namespace {

constexpr const char* kKnown = "portable, avx2, avx512";

#if defined(__x86_64__)
bool has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
         __builtin_cpu_supports("bmi2");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni");
}
#endif

}  // namespace

std::vector<const Kernels*> available_kernels() {
  std::vector<const Kernels*> all{&kPortableKernels};
#if defined(__x86_64__)
  if (has_avx2()) all.push_back(&kAvx2Kernels);
  if (has_avx512()) all.push_back(&kAvx512Kernels);
#endif
  return all;
}

const Kernels& choose_kernels(const std::string& name) {
  std::string here;
  for (const Kernels* kernels : available_kernels()) {
    if (name == kernels->name) return *kernels;
    here += (here.empty() ? "" : ", ") + std::string(kernels->name);
  }
  const bool known = name == "avx2" || name == "avx512";
  fail({ErrorCode::kUsage, known ? "this machine cannot run the instruction set asked for" : "unknown instruction set",
        "DOPPLER_CPU", "one of " + (known ? here : std::string(kKnown)), name,
        "Unset DOPPLER_CPU to use the best there is"});
}

const Kernels& choose_kernels() {
  const char* name = std::getenv("DOPPLER_CPU");
  if (name && *name) return choose_kernels(std::string(name));
  return *available_kernels().back();
}

}  // namespace doppler::cpu
