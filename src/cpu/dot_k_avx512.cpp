#if defined(__x86_64__)
// Rows of Q4_K and Q6_K times one row of int8 activations: the loops that decode spends its time in. Weights are
// read strictly in the order they lie in memory, which is what the hardware's prefetchers follow.
#include "cpu/formats_avx512.h"
#include "cpu/k_blocks_avx512.h"
#include "cpu/reduce_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

// R rows: Σ d·sc·(q·x) − dmin·m·Σx. A block's eight groups of 32: bytes 16+32c+i hold group 2c in the low nibbles
// and 2c+1 in the high ones, so one 64-byte load has groups 0 and 2 below, 1 and 3 above.
template <int R>
inline __m512 rows_q4_k(const uint8_t* w, const ActBlock* x, int blocks) {
  const __m512i nibble = _mm512_set1_epi8(15);
  const __m512i pick[4] = {halves(0, 2), halves(1, 3), halves(4, 6), halves(5, 7)};
  __m512 sums[R];
  Q4Headers headers(w, kQ4Bytes, R * blocks);
  int i = 0;
  for (int r = 0; r < R; ++r) {
    __m512 sum0 = _mm512_setzero_ps(), sum1 = _mm512_setzero_ps(), mins = _mm512_setzero_ps();
    for (const ActBlock* a = x; a != x + blocks; ++a, w += kQ4Bytes, ++i) {
      const int j = i & 3;
      if (j == 0 && i > 0) headers = Q4Headers(w, kQ4Bytes, R * blocks - i);
      // Lanes 0–7: what each group's product is multiplied by; lanes 8–15: what its minimum takes away.
      const __m512 s = _mm512_mul_ps(headers.of(j), _mm512_load_ps(a->d));
      mins = _mm512_add_ps(mins, s);
      const __m512i q0 = _mm512_loadu_si512(w + 16), q1 = _mm512_loadu_si512(w + 80);
      const __m512i zero = _mm512_setzero_si512();
      const __m512i p0 = _mm512_dpbusd_epi32(zero, _mm512_and_si512(q0, nibble), _mm512_load_si512(a->q));
      const __m512i p1 = _mm512_dpbusd_epi32(zero, _mm512_and_si512(_mm512_srli_epi16(q0, 4), nibble),
                                             _mm512_load_si512(a->q + 64));
      const __m512i p2 = _mm512_dpbusd_epi32(zero, _mm512_and_si512(q1, nibble), _mm512_load_si512(a->q + 128));
      const __m512i p3 = _mm512_dpbusd_epi32(zero, _mm512_and_si512(_mm512_srli_epi16(q1, 4), nibble),
                                             _mm512_load_si512(a->q + 192));
      sum0 = _mm512_fmadd_ps(_mm512_cvtepi32_ps(p0), _mm512_permutexvar_ps(pick[0], s), sum0);
      sum1 = _mm512_fmadd_ps(_mm512_cvtepi32_ps(p1), _mm512_permutexvar_ps(pick[1], s), sum1);
      sum0 = _mm512_fmadd_ps(_mm512_cvtepi32_ps(p2), _mm512_permutexvar_ps(pick[2], s), sum0);
      sum1 = _mm512_fmadd_ps(_mm512_cvtepi32_ps(p3), _mm512_permutexvar_ps(pick[3], s), sum1);
    }
    const __m512 sum = _mm512_add_ps(sum0, sum1);
    sums[r] = _mm512_mask_sub_ps(sum, 0xff00, sum, mins);
  }
  return sum_rows<R>(sums);
}

// R rows: Σ d·sc·((q − 32)·x) over groups of 16. In each half block, 32 bytes of ql hold groups of 32 number 0 (low
// nibbles) and 2 (high), the next 32 bytes numbers 1 and 3; the upper two bits of all four lie in 32 bytes of qh.
template <int R>
inline __m512 rows_q6_k(const uint8_t* w, const ActBlock* x, int blocks) {
  const __m512i nibble = _mm512_set1_epi8(15), upper = _mm512_set1_epi8(0x30);
  const __m512i shift = join(_mm256_setzero_si256(), _mm256_set1_epi16(4));
  const __m512i control0 = qh_controls(qh_control(0), qh_control(4)), control1 = qh_controls(qh_control(2), qh_control(6));
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  const __m512i pick0 = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 4, 4, 4, 4, 5, 5, 5, 5);
  const __m512i pick[4] = {pick0, _mm512_add_epi32(pick0, _mm512_set1_epi32(2)),
                           _mm512_add_epi32(pick0, _mm512_set1_epi32(8)), _mm512_add_epi32(pick0, _mm512_set1_epi32(10))};
  __m512 sums[R];
  for (int r = 0; r < R; ++r) {
    __m512 sum0 = _mm512_setzero_ps(), sum1 = _mm512_setzero_ps(), offsets = _mm512_setzero_ps();
    for (const ActBlock* a = x; a != x + blocks; ++a, w += kQ6Bytes) {
      uint16_t half_d;
      __builtin_memcpy(&half_d, w + 208, 2);
      const __m512 d = _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<short>(half_d)));
      const __m512i sc = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w + 192)));
      const __m512 x_scales = _mm512_permutexvar_ps(twice, _mm512_load_ps(a->d));
      const __m512 s = _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sc), d), x_scales);
      offsets = _mm512_fmadd_ps(s, _mm512_cvtepi32_ps(_mm512_load_si512(a->s16)), offsets);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m512i qh = _mm512_broadcast_i64x4(load32(w + 128 + 32 * half));
        const __m512i ql0 = _mm512_broadcast_i64x4(load32(w + 64 * half));
        const __m512i ql1 = _mm512_broadcast_i64x4(load32(w + 64 * half + 32));
        const __m512i q0 = _mm512_ternarylogic_epi32(_mm512_multishift_epi64_epi8(control0, qh), upper,
                                                     _mm512_and_si512(_mm512_srlv_epi16(ql0, shift), nibble), 0xea);
        const __m512i q1 = _mm512_ternarylogic_epi32(_mm512_multishift_epi64_epi8(control1, qh), upper,
                                                     _mm512_and_si512(_mm512_srlv_epi16(ql1, shift), nibble), 0xea);
        const __m512i zero = _mm512_setzero_si512();
        const __m512i p0 = _mm512_dpbusd_epi32(zero, q0, _mm512_load_si512(a->q + 128 * half));
        const __m512i p1 = _mm512_dpbusd_epi32(zero, q1, _mm512_load_si512(a->q + 128 * half + 64));
        sum0 = _mm512_fmadd_ps(_mm512_cvtepi32_ps(p0), _mm512_permutexvar_ps(pick[2 * half], s), sum0);
        sum1 = _mm512_fmadd_ps(_mm512_cvtepi32_ps(p1), _mm512_permutexvar_ps(pick[2 * half + 1], s), sum1);
      }
    }
    sums[r] = _mm512_fnmadd_ps(_mm512_set1_ps(32.0f), offsets, _mm512_add_ps(sum0, sum1));
  }
  return sum_rows<R>(sums);
}

}  // namespace

void dot_q4_k(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  const int blocks = (k + kBlock - 1) / kBlock;
  by_rows(weights, stride, rows, out, [&](auto r, const uint8_t* w) {
    return rows_q4_k<decltype(r)::value>(w, static_cast<const ActBlock*>(x), blocks);
  });
}

void dot_q6_k(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  const int blocks = (k + kBlock - 1) / kBlock;
  by_rows(weights, stride, rows, out, [&](auto r, const uint8_t* w) {
    return rows_q6_k<decltype(r)::value>(w, static_cast<const ActBlock*>(x), blocks);
  });
}

}  // namespace doppler::cpu::avx512
#endif
