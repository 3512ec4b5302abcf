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

std::vector<KernelKind> kernel_kinds() {
  std::vector<std::string> names;
  for (const Kernels* kernels : available_kernels()) names.emplace_back(kernels->name);
  std::vector<KernelKind> kinds;
  for (const char* kind : {"all", "matmul", "attention", "norm", "rope", "glu", "state"})
    kinds.push_back({kind, names});
  return kinds;
}

Kernels mixed_kernels(const Kernels& base, const KernelWishes& wishes) {
  Kernels mixed = base;
  const auto from = [&](const char* kind, const auto& take) {
    const std::string name(wish_for(wishes, kind));
    if (!name.empty()) take(choose_kernels(name));
  };
  from("all", [&](const Kernels& k) { mixed = k; });
  from("matmul", [&](const Kernels& k) {
    std::copy(std::begin(k.formats), std::end(k.formats), mixed.formats);
    mixed.min_gemm_tokens_packed = k.min_gemm_tokens_packed;
    mixed.quantize = k.quantize;
    mixed.quantize_wide = k.quantize_wide;
    mixed.quantize_group = k.quantize_group;
    mixed.quantize_wide_group = k.quantize_wide_group;
    mixed.quantize_bytes = k.quantize_bytes;
  });
  from("attention", [&](const Kernels& k) {
    mixed.to_i16 = k.to_i16;
    mixed.attend = k.attend;
    mixed.merge = k.merge;
  });
  from("norm", [&](const Kernels& k) { mixed.norm = k.norm; });
  from("rope", [&](const Kernels& k) { mixed.rope = k.rope; });
  from("glu", [&](const Kernels& k) {
    mixed.glu = k.glu;
    mixed.glu_interleaved = k.glu_interleaved;
  });
  from("state", [&](const Kernels& k) {
    mixed.convolve = k.convolve;
    mixed.delta_step = k.delta_step;
  });
  return mixed;
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
