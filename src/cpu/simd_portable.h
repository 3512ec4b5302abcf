// A vector of 8 floats in plain code, which any compiler turns into whatever vectors the target has.
#pragma once

#include <cmath>
#include <cstring>

#include "cpu/kernels.h"

namespace doppler::cpu::portable {
namespace {

constexpr int kLanes = 8;
struct Vf {
  float v[kLanes];
};
struct Vm {
  bool v[kLanes];
};

template <class Function>
inline Vf each(Function&& f) {
  Vf r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = f(i);
  return r;
}
inline float from_bits(uint32_t u) {
  float f;
  std::memcpy(&f, &u, sizeof f);
  return f;
}
inline uint32_t to_bits(float f) {
  uint32_t u;
  std::memcpy(&u, &f, sizeof u);
  return u;
}

inline Vf zero() { return {}; }
inline Vf set1(float x) {
  return each([&](int) { return x; });
}
inline Vf load(const float* p) {
  return each([&](int i) { return p[i]; });
}
inline Vf load_n(const float* p, int n) {
  Vf r = {};
  for (int i = 0; i < n; ++i) r.v[i] = p[i];
  return r;
}
inline void store(float* p, const Vf& a) {
  for (int i = 0; i < kLanes; ++i) p[i] = a.v[i];
}
inline void store_n(float* p, const Vf& a, int n) {
  for (int i = 0; i < n; ++i) p[i] = a.v[i];
}

// Finite f16 only: the exponent is moved by a multiplication, which also brings subnormals right.
inline float f16_value(uint16_t h) {
  const float magnitude = from_bits(static_cast<uint32_t>(h & 0x7fffu) << 13) * 0x1p112f;
  return from_bits(to_bits(magnitude) | static_cast<uint32_t>(h & 0x8000u) << 16);
}
inline Vf load_f16(const uint16_t* p) {
  return each([&](int i) { return f16_value(p[i]); });
}
inline Vf load_f16_n(const uint16_t* p, int n) {
  Vf r = {};
  for (int i = 0; i < n; ++i) r.v[i] = f16_value(p[i]);
  return r;
}
inline Vf load_i16(const int16_t* p) {
  return each([&](int i) { return static_cast<float>(p[i]); });
}
inline Vf load_i16_n(const int16_t* p, int n) {
  Vf r = {};
  for (int i = 0; i < n; ++i) r.v[i] = static_cast<float>(p[i]);
  return r;
}
// Adding and taking away 1.5 · 2^23 rounds to the nearest even whole number (|a| < 2^22).
inline float round_one(float a) {
  const float big = a + 12582912.0f;
  return big - 12582912.0f;
}
inline void store_i16_n(int16_t* p, const Vf& a, int n) {  // rounds to nearest even; |a| ≤ 32767
  for (int i = 0; i < n; ++i) p[i] = static_cast<int16_t>(round_one(a.v[i]));
}

inline Vf add(const Vf& a, const Vf& b) {
  return each([&](int i) { return a.v[i] + b.v[i]; });
}
inline Vf sub(const Vf& a, const Vf& b) {
  return each([&](int i) { return a.v[i] - b.v[i]; });
}
inline Vf mul(const Vf& a, const Vf& b) {
  return each([&](int i) { return a.v[i] * b.v[i]; });
}
inline Vf div(const Vf& a, const Vf& b) {
  return each([&](int i) { return a.v[i] / b.v[i]; });
}
inline Vf max(const Vf& a, const Vf& b) {
  return each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline Vf min(const Vf& a, const Vf& b) {
  return each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline Vf abs(const Vf& a) {
  return each([&](int i) { return std::fabs(a.v[i]); });
}
inline Vf fma(const Vf& a, const Vf& b, const Vf& c) {
  return each([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
}
inline Vf fnma(const Vf& a, const Vf& b, const Vf& c) {
  return each([&](int i) { return c.v[i] - a.v[i] * b.v[i]; });
}
inline Vf copy_sign(const Vf& magnitude, const Vf& sign) {
  return each([&](int i) { return std::copysign(magnitude.v[i], sign.v[i]); });
}
inline float sum_lanes(const Vf& a) {
  float half[4];
  for (int i = 0; i < 4; ++i) half[i] = a.v[i] + a.v[i + 4];
  return (half[0] + half[2]) + (half[1] + half[3]);
}
inline float max_lanes(const Vf& a) {
  float m = a.v[0];
  for (int i = 1; i < kLanes; ++i) m = a.v[i] > m ? a.v[i] : m;
  return m;
}
inline Vf round(const Vf& a) {
  return each([&](int i) { return round_one(a.v[i]); });
}
inline Vf times_pow2(const Vf& a, const Vf& whole) {  // a · 2^whole for −126 ≤ whole ≤ 127
  return each(
      [&](int i) { return a.v[i] * from_bits(static_cast<uint32_t>(static_cast<int32_t>(whole.v[i]) + 127) << 23); });
}

// Lanes whose position lies in [low, high].
inline Vm between(const int32_t* positions, int32_t low, int32_t high) {
  Vm m;
  for (int i = 0; i < kLanes; ++i) m.v[i] = positions[i] >= low && positions[i] <= high;
  return m;
}
inline bool any(const Vm& m) {
  bool r = false;
  for (int i = 0; i < kLanes; ++i) r |= m.v[i];
  return r;
}
inline Vf select(const Vm& m, const Vf& yes, const Vf& no) {
  return each([&](int i) { return m.v[i] ? yes.v[i] : no.v[i]; });
}

// Splits 16 floats a0 b0 a1 b1 … into a and b.
inline void deinterleave(const float* p, Vf& a, Vf& b) {
  for (int i = 0; i < kLanes; ++i) {
    a.v[i] = p[2 * i];
    b.v[i] = p[2 * i + 1];
  }
}

// The largest magnitude of 32 floats; NaN if one is NaN (magnitudes order like their bits, NaN highest).
inline float max_abs32(const float* x) {
  uint32_t most = 0;
  for (int i = 0; i < 32; ++i) {
    const uint32_t bits = to_bits(x[i]) & 0x7fffffffu;
    most = bits > most ? bits : most;
  }
  return from_bits(most);
}

// 32 floats to int8 with the given 1/scale; returns the sums of both halves.
inline void quantize32(const float* x, float inverse, int8_t* q, int32_t& sum0, int32_t& sum1) {
  int32_t sums[2] = {0, 0};
  for (int i = 0; i < 32; ++i) {
    const int32_t value = static_cast<int32_t>(round_one(x[i] * inverse));
    q[i] = static_cast<int8_t>(value);
    sums[i / 16] += value;
  }
  sum0 = sums[0];
  sum1 = sums[1];
}

// 32 floats to 15 bits with the given 1/scale; returns the sum.
inline int32_t quantize32_wide(const float* x, float inverse, int8_t* high, int8_t* low) {
  int32_t sum = 0;
  for (int i = 0; i < 32; ++i) {
    const int32_t q = static_cast<int32_t>(round_one(x[i] * inverse)), h = (q + 64) >> 7;
    high[i] = static_cast<int8_t>(h);
    low[i] = static_cast<int8_t>(q - h * 128);
    sum += q;
  }
  return sum;
}

}  // namespace
}  // namespace doppler::cpu::portable
