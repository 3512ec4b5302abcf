// The block quantisers, compiled for several instruction sets; all give the same bytes.
#pragma once

#include <cstdint>
#include <span>

namespace doppler::quant {

// weights[n] -> one block of bytes, 1 <= n <= the weights of a block
using BlockQuantizer = void (*)(const float* weights, int n, uint8_t* out);

struct Kernels {
  const char* name;  // "avx512", "avx2", "portable"
  BlockQuantizer q8_0, q5_0, q4_0, q4_k, q6_k;
};

// Those this processor can run, the fastest first.
std::span<const Kernels> kernels();

}  // namespace doppler::quant
