#include "cpu/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "base/error.h"

namespace doppler::cpu {
namespace {

constexpr const char* kKnown = "portable, avx2, avx512, amx";

#if defined(__x86_64__)
bool has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
         __builtin_cpu_supports("bmi2");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("gfni");
}

// The tile registers are there, and the system lets this process use them (it asks to be asked, once a process).
bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!has_avx512() || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned kAmxTile = 1u << 24, kAmxInt8 = 1u << 25;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return (d & kAmxTile) && (d & kAmxInt8) && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

}  // namespace

std::vector<const Kernels*> available_kernels() {
  std::vector<const Kernels*> all{&kPortableKernels};
#if defined(__x86_64__)
  if (has_avx2()) all.push_back(&kAvx2Kernels);
  if (has_avx512()) all.push_back(&avx512_kernels());
  static const bool amx = has_amx();
  if (amx) all.push_back(&amx_kernels());
#endif
  return all;
}

const Kernels& choose_kernels(const std::string& name) {
  std::string here;
  for (const Kernels* kernels : available_kernels()) {
    if (name == kernels->name) return *kernels;
    here += (here.empty() ? "" : ", ") + std::string(kernels->name);
  }
  const bool known = name == "avx2" || name == "avx512" || name == "amx";
  fail({.code = ErrorCode::kUsage,
        .what = known ? "this machine cannot run the instruction set asked for" : "unknown instruction set",
        .where = "DOPPLER_CPU",
        .expected = "one of " + (known ? here : std::string(kKnown)),
        .got = name,
        .todo = "Unset DOPPLER_CPU to use the best there is"});
}

const Kernels& unpacked_kernels() {
  const Kernels* best = &kPortableKernels;
  for (const Kernels* kernels : available_kernels()) {
    const bool packs = std::any_of(std::begin(kernels->formats), std::end(kernels->formats),
                                   [](const Format& format) { return format.packing != nullptr; });
    if (!packs) best = kernels;
  }
  return *best;
}

const Kernels& choose_kernels() {
  const char* name = std::getenv("DOPPLER_CPU");
  if (name && *name) return choose_kernels(std::string(name));
  return *available_kernels().back();
}

}  // namespace doppler::cpu
