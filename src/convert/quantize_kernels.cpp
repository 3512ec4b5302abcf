#include "convert/quantize_kernels.h"

#include <vector>

#include "convert/quantize_k_blocks.h"

namespace doppler::quant {
namespace {

// A target attribute compiles the inlined body for an instruction set; which one runs is decided at run time. Fused
// multiply-add is left out on purpose: it would round differently from machine to machine.
#define DOPPLER_KERNELS(suffix, width, attribute)                                                        \
  attribute void q8_0_##suffix(const float* w, int n, uint8_t* out) { quantize_q8_0<width>(w, n, out); } \
  attribute void q5_0_##suffix(const float* w, int n, uint8_t* out) { quantize_q5_0<width>(w, n, out); } \
  attribute void q4_0_##suffix(const float* w, int n, uint8_t* out) { quantize_q4_0<width>(w, n, out); } \
  attribute void q4_k_##suffix(const float* w, int n, uint8_t* out) { quantize_q4_k<width>(w, n, out); } \
  attribute void q6_k_##suffix(const float* w, int n, uint8_t* out) { quantize_q6_k<width>(w, n, out); } \
  constexpr Kernels k_##suffix = {#suffix, q8_0_##suffix, q5_0_##suffix, q4_0_##suffix, q4_k_##suffix, q6_k_##suffix};

DOPPLER_KERNELS(portable, 4, )
#if defined(__x86_64__)
DOPPLER_KERNELS(avx2, 8, __attribute__((target("avx2"))))
DOPPLER_KERNELS(avx512, 16, __attribute__((target("avx2,avx512f,avx512bw,avx512dq,avx512vl"))))
#endif

std::vector<Kernels> usable_kernels() {
  std::vector<Kernels> found;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    found.push_back(k_avx512);
  }
  if (__builtin_cpu_supports("avx2")) found.push_back(k_avx2);
#endif
  found.push_back(k_portable);
  return found;
}

}  // namespace

std::span<const Kernels> kernels() {
  static const std::vector<Kernels> usable = usable_kernels();
  return usable;
}

}  // namespace doppler::quant
