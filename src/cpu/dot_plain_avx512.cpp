#if defined(__x86_64__)
// Rows of Q8_0 times int8 activations, and of F32, F16 and BF16 times f32 activations.
#include "cpu/formats_avx512.h"
#include "cpu/reduce_avx512.h"
#include "cpu/simd_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

constexpr size_t kQ8Bytes = 34;
constexpr int kQ8Blocks = kBlock / 32;  // of Q8_0 in one block of activations

// Eight Q8_0 blocks (256 weights) of one row: adds scale·(q·x) to `sum` and what the offset of 128 added too much,
// in lanes 8–15 of `offsets`.
inline void block_q8_0(const uint8_t* w, const ActBlock* a, __m512& sum, __m512& offsets) {
  const __m512i flip = _mm512_set1_epi8(-128);  // int8 to uint8 with an offset of 128
  __m128i half_d = _mm_setzero_si128();
  const auto d_at = [&](int i) {
    uint16_t d;
    __builtin_memcpy(&d, w + static_cast<size_t>(i) * kQ8Bytes, 2);
    return static_cast<int>(d);
  };
  half_d = _mm_insert_epi16(half_d, d_at(0), 0);
  half_d = _mm_insert_epi16(half_d, d_at(1), 1);
  half_d = _mm_insert_epi16(half_d, d_at(2), 2);
  half_d = _mm_insert_epi16(half_d, d_at(3), 3);
  half_d = _mm_insert_epi16(half_d, d_at(4), 4);
  half_d = _mm_insert_epi16(half_d, d_at(5), 5);
  half_d = _mm_insert_epi16(half_d, d_at(6), 6);
  half_d = _mm_insert_epi16(half_d, d_at(7), 7);
  const __m512 d = _mm512_castpd_ps(_mm512_broadcast_f64x4(_mm256_castps_pd(_mm256_cvtph_ps(half_d))));
  const __m512 s = _mm512_mul_ps(d, _mm512_load_ps(a->d));
  offsets = _mm512_add_ps(offsets, s);
#pragma GCC unroll 4
  for (int pair = 0; pair < 4; ++pair) {
    const int group = (pair & 2) * 2 + (pair & 1);  // and group + 2: how activations lie
    const uint8_t* p = w + static_cast<size_t>(group) * kQ8Bytes + 2;
    const __m512i q = _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))),
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 2 * kQ8Bytes)), 1);
    const __m512i dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_xor_si512(q, flip),
                                            _mm512_load_si512(a->q + 64 * pair));
    const __m512i pick = _mm512_inserti64x4(_mm512_set1_epi32(group), _mm256_set1_epi32(group + 2), 1);
    sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_permutexvar_ps(pick, s), sum);
  }
}

template <int R>
inline __m512 rows_q8_0(const uint8_t* w, size_t stride, const ActBlock* a, int k) {
  __m512 sum[R], offsets[R];
  for (int r = 0; r < R; ++r) sum[r] = offsets[r] = _mm512_setzero_ps();
  const int units = (k + 31) / 32;
  int unit = 0;
  for (; unit + kQ8Blocks <= units; unit += kQ8Blocks, w += kQ8Blocks * kQ8Bytes, ++a) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) block_q8_0(w + static_cast<size_t>(r) * stride, a, sum[r], offsets[r]);
  }
  if (unit < units) {  // what is left of a row, with zeros behind it
    for (int r = 0; r < R; ++r) {
      uint8_t rest[kQ8Blocks * kQ8Bytes] = {};
      __builtin_memcpy(rest, w + static_cast<size_t>(r) * stride, static_cast<size_t>(units - unit) * kQ8Bytes);
      block_q8_0(rest, a, sum[r], offsets[r]);
    }
  }
  const __m512 excess = _mm512_set1_ps(128.0f);
  for (int r = 0; r < R; ++r) sum[r] = _mm512_mask3_fnmadd_ps(excess, offsets[r], sum[r], 0xff00);
  return sum_rows<R>(sum);
}

// One row of floats. Load(p, i) gives weights i … i+15, LoadPart(p, i, n) the n ≤ 16 of them that exist.
template <class Load, class LoadPart>
inline float row_float(const float* x, int k, Load&& weights, LoadPart&& some) {
  Vf sum[4] = {zero(), zero(), zero(), zero()};
  int i = 0;
  for (; i + 4 * kLanes <= k; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) sum[j] = fma(weights(i + j * kLanes), load(x + i + j * kLanes), sum[j]);
  }
  for (; i < k; i += kLanes) {
    const int n = k - i < kLanes ? k - i : kLanes;
    sum[0] = fma(some(i, n), load_n(x + i, n), sum[0]);
  }
  return sum_lanes(add(add(sum[0], sum[1]), add(sum[2], sum[3])));
}

inline Vf load_bf16(__m256i raw) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16)); }

}  // namespace

void dot_q8_0(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  by_rows(weights, stride, rows, out, [&](auto r, const uint8_t* w) {
    return rows_q8_0<decltype(r)::value>(w, stride, static_cast<const ActBlock*>(x), k);
  });
}

void dot_f32(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  for (int r = 0; r < rows; ++r) {
    const float* w = reinterpret_cast<const float*>(static_cast<const uint8_t*>(weights) + static_cast<size_t>(r) * stride);
    out[r] = row_float(
        static_cast<const float*>(x), k, [&](int i) { return load(w + i); },
        [&](int i, int n) { return load_n(w + i, n); });
  }
}

void dot_f16(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  for (int r = 0; r < rows; ++r) {
    const uint16_t* w =
        reinterpret_cast<const uint16_t*>(static_cast<const uint8_t*>(weights) + static_cast<size_t>(r) * stride);
    out[r] = row_float(
        static_cast<const float*>(x), k, [&](int i) { return load_f16(w + i); },
        [&](int i, int n) { return load_f16_n(w + i, n); });
  }
}

void dot_bf16(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  for (int r = 0; r < rows; ++r) {
    const uint16_t* w =
        reinterpret_cast<const uint16_t*>(static_cast<const uint8_t*>(weights) + static_cast<size_t>(r) * stride);
    out[r] = row_float(
        static_cast<const float*>(x), k,
        [&](int i) { return load_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + i))); },
        [&](int i, int n) { return load_bf16(_mm256_maskz_loadu_epi16(low_lanes(n), w + i)); });
  }
}

}  // namespace doppler::cpu::avx512
#endif
