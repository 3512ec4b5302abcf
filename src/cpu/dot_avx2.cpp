#if defined(__x86_64__)
// Weight rows times one token with AVX2. Products of uint8 and int8 are summed in pairs in int16, which the ranges of
// Q4_K and Q6_K cannot overflow; Q8_0 moves its sign to the activation.
#include "cpu/formats_avx2.h"
#include "cpu/k_blocks_avx2.h"

namespace doppler::cpu::avx2 {
namespace {

inline Vf products(__m256i unsigned_w, __m256i x) {
  const __m256i pairs = _mm256_maddubs_epi16(unsigned_w, x);
  return _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
inline const int8_t* group(const ActBlock* a, int g) { return a->q + group_offset(g); }
// Four lanes of a, four of b.
inline Vf two(float a, float b) { return _mm256_insertf128_ps(set1(a), _mm_set1_ps(b), 1); }

float row_q4_k(const uint8_t* w, const ActBlock* a, int blocks) {
  Vf sum0 = zero(), sum1 = zero(), taken = zero();
  for (int b = 0; b < blocks; ++b, w += kQ4Bytes, ++a) {
    Vf scales, mins;
    q4_scales(w, scales, mins);
    taken = fma(mins, load(a->ds), taken);
    alignas(32) float s[8];
    _mm256_store_ps(s, mul(scales, load(a->d)));
    for (int c = 0; c < 4; ++c) {
      __m256i even, odd;
      q4_groups(w, c, even, odd);
      sum0 = fma(products(even, load32(group(a, 2 * c))), set1(s[2 * c]), sum0);
      sum1 = fma(products(odd, load32(group(a, 2 * c + 1))), set1(s[2 * c + 1]), sum1);
    }
  }
  return sum_lanes(sub(add(sum0, sum1), taken));
}

float row_q6_k(const uint8_t* w, const ActBlock* a, int blocks) {
  Vf sum0 = zero(), sum1 = zero(), offsets = zero();
  const __m256i low_twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  const __m256i high_twice = _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7);
  for (int b = 0; b < blocks; ++b, w += kQ6Bytes, ++a) {
    Vf low, high;
    q6_scales(w, low, high);
    const Vf d = load(a->d);
    low = mul(low, _mm256_permutevar8x32_ps(d, low_twice));
    high = mul(high, _mm256_permutevar8x32_ps(d, high_twice));
    offsets = fma(low, _mm256_cvtepi32_ps(load32(a->s16)), offsets);
    offsets = fma(high, _mm256_cvtepi32_ps(load32(a->s16 + 8)), offsets);
    alignas(32) float s[16];
    _mm256_store_ps(s, low);
    _mm256_store_ps(s + 8, high);
    for (int half = 0; half < 2; ++half) {
      __m256i q[4];
      q6_groups(w, half, q);
      const float* h = s + 8 * half;
      sum0 = fma(products(q[0], load32(group(a, 4 * half))), two(h[0], h[1]), sum0);
      sum1 = fma(products(q[1], load32(group(a, 4 * half + 1))), two(h[2], h[3]), sum1);
      sum0 = fma(products(q[2], load32(group(a, 4 * half + 2))), two(h[4], h[5]), sum0);
      sum1 = fma(products(q[3], load32(group(a, 4 * half + 3))), two(h[6], h[7]), sum1);
    }
  }
  return sum_lanes(fnma(set1(32.0f), offsets, add(sum0, sum1)));
}

float row_q8_0(const uint8_t* w, const ActBlock* a, int k) {
  Vf sum[2] = {zero(), zero()};
  const int units = (k + 31) / 32;
  for (int u = 0; u < units; ++u, w += kQ8Bytes) {
    const ActBlock* block = a + u / (kBlock / kGroup);
    const int g = u % (kBlock / kGroup);
    const __m256i q = load32(w + 2), x = load32(group(block, g));
    const Vf dot = products(_mm256_sign_epi8(q, q), _mm256_sign_epi8(x, q));
    sum[u & 1] = fma(dot, set1(half_at(w) * block->d[g]), sum[u & 1]);
  }
  return sum_lanes(add(sum[0], sum[1]));
}

// Load(i) gives weights i … i+7, LoadPart(i, n) the n ≤ 8 of them that exist.
template <class Load, class LoadPart>
inline float row_float(const float* x, int k, Load&& weights, LoadPart&& some) {
  Vf sum[4] = {zero(), zero(), zero(), zero()};
  int i = 0;
  for (; i + 4 * kLanes <= k; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) sum[j] = fma(weights(i + j * kLanes), load(x + i + j * kLanes), sum[j]);
  }
  for (; i < k; i += kLanes) {
    const int n = k - i < kLanes ? k - i : kLanes;
    sum[0] = fma(some(i, n), load_n(x + i, n), sum[0]);
  }
  return sum_lanes(add(add(sum[0], sum[1]), add(sum[2], sum[3])));
}

inline Vf load_bf16(const uint16_t* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
inline Vf load_bf16_n(const uint16_t* p, int n) {
  uint16_t part[8] = {};
  for (int i = 0; i < n; ++i) part[i] = p[i];
  return load_bf16(part);
}

inline const uint8_t* row_at(const void* weights, size_t stride, int r) {
  return static_cast<const uint8_t*>(weights) + static_cast<size_t>(r) * stride;
}
inline int blocks_of(int k) { return (k + kBlock - 1) / kBlock; }

}  // namespace

void dot_q4_k(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  for (int r = 0; r < rows; ++r) {
    out[r] = row_q4_k(row_at(weights, stride, r), static_cast<const ActBlock*>(x), blocks_of(k));
  }
}

void dot_q6_k(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  for (int r = 0; r < rows; ++r) {
    out[r] = row_q6_k(row_at(weights, stride, r), static_cast<const ActBlock*>(x), blocks_of(k));
  }
}

void dot_q8_0(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  for (int r = 0; r < rows; ++r) out[r] = row_q8_0(row_at(weights, stride, r), static_cast<const ActBlock*>(x), k);
}

void dot_f32(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  for (int r = 0; r < rows; ++r) {
    const float* w = reinterpret_cast<const float*>(row_at(weights, stride, r));
    out[r] = row_float(
        static_cast<const float*>(x), k, [&](int i) { return load(w + i); },
        [&](int i, int n) { return load_n(w + i, n); });
  }
}

void dot_f16(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  for (int r = 0; r < rows; ++r) {
    const uint16_t* w = reinterpret_cast<const uint16_t*>(row_at(weights, stride, r));
    out[r] = row_float(
        static_cast<const float*>(x), k, [&](int i) { return load_f16(w + i); },
        [&](int i, int n) { return load_f16_n(w + i, n); });
  }
}

void dot_bf16(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  for (int r = 0; r < rows; ++r) {
    const uint16_t* w = reinterpret_cast<const uint16_t*>(row_at(weights, stride, r));
    out[r] = row_float(
        static_cast<const float*>(x), k, [&](int i) { return load_bf16(w + i); },
        [&](int i, int n) { return load_bf16_n(w + i, n); });
  }
}

}  // namespace doppler::cpu::avx2
#endif
