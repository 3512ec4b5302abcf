// Counter-based random numbers (Philox 4×32, ten rounds: Salmon et al. 2011). The n-th number of a seed is a pure
// function of (seed, n): the same whatever ran before, on any thread, and in a shader.
#pragma once

#include <array>
#include <cstdint>

namespace doppler {

inline std::array<uint32_t, 4> philox(uint64_t seed, uint64_t counter) {
  std::array<uint32_t, 4> x{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = 0xD2511F53ull * x[0], b = 0xCD9E8D57ull * x[2];
    x = {static_cast<uint32_t>(b >> 32) ^ x[1] ^ key0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ x[3] ^ key1, static_cast<uint32_t>(a)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return x;
}

// Uniform in [0, 1), 24 bits: exact in f32, so that a shader draws the same.
inline float uniform(uint64_t seed, uint64_t counter) {
  return static_cast<float>(philox(seed, counter)[0] >> 8) * 0x1p-24f;
}

}  // namespace doppler
