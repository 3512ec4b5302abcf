#if defined(__x86_64__)
// Rows of Q4_K, Q6_K, Q8_0 and MXFP4 times one row of int8 activations: the loops that decode spends its time in.
// Weights are read strictly in the order they lie in memory, which is what the hardware's prefetchers follow.
#include "cpu/block_sums_avx512.h"
#include "cpu/formats_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

inline __m512i dot(__m512i unsigned_w, const int8_t* x) {
  return _mm512_dpbusd_epi32(_mm512_setzero_si512(), unsigned_w, _mm512_load_si512(x));
}

// scale · (d · Σ q·x) − min · (d · Σ x) of eight groups of 32.
template <class X>
inline void store_min_terms(__m256i sums, __m256 scale, __m256 min, const X* a, float* to) {
  const __m256 products = _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sums), _mm256_load_ps(a->d)), scale);
  _mm256_store_ps(to, _mm256_fnmadd_ps(min, _mm256_load_ps(a->ds), products));
}

// A block's eight groups of 32: bytes 16+32c+i hold group 2c in the low nibbles and 2c+1 in the high ones, so one
// 64-byte load has groups 0 and 2 below, 1 and 3 above.
struct Q4 {
  using X = ActBlock;
  static constexpr int kTerms = 8;
  static constexpr size_t kBytes = kQ4Bytes;
  Q4Headers headers;

  Q4(const uint8_t* w, int left) : headers(w, kQ4Bytes, left) {}

  void terms(const uint8_t* w, int j, const ActBlock* a, int /*columns*/, float* to) const {
    const __m512i nibble = _mm512_set1_epi8(15);
    const __m512 numbers = headers.of(j);
    const __m512i q0 = _mm512_loadu_si512(w + 16), q1 = _mm512_loadu_si512(w + 80);
    const __m256i sums = sum_groups(dot(_mm512_and_si512(q0, nibble), a->q),
                                    dot(_mm512_and_si512(_mm512_srli_epi16(q0, 4), nibble), a->q + 64),
                                    dot(_mm512_and_si512(q1, nibble), a->q + 128),
                                    dot(_mm512_and_si512(_mm512_srli_epi16(q1, 4), nibble), a->q + 192));
    store_min_terms(sums, _mm512_castps512_ps256(numbers), _mm512_extractf32x8_ps(numbers, 1), a, to);
  }
};

// Groups of 16 with a zero point of 32. In each half block, 32 bytes of ql hold groups of 32 number 0 (low nibbles) and
// 2 (high), the next 32 bytes numbers 1 and 3; the upper two bits of all four lie in 32 bytes of qh.
struct Q6 {
  using X = ActBlock;
  static constexpr int kTerms = 16;
  static constexpr size_t kBytes = kQ6Bytes;

  Q6(const uint8_t* /*w*/, int /*left*/) {}

  void terms(const uint8_t* w, int /*j*/, const ActBlock* a, int /*columns*/, float* to) const {
    const __m512i nibble = _mm512_set1_epi8(15), upper = _mm512_set1_epi8(0x30);
    const __m512i shift = join(_mm256_setzero_si256(), _mm256_set1_epi16(4));
    const __m512i control02 = qh_controls(qh_control(0), qh_control(4));
    const __m512i control13 = qh_controls(qh_control(2), qh_control(6));
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    // From [lane of 128][vector] to the order of the columns.
    const __m512i order = _mm512_setr_epi32(0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7, 10, 14, 11, 15);
    __m512i p[4];
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m512i qh = _mm512_broadcast_i64x4(load32(w + 128 + 32 * half));
      const __m512i ql02 = _mm512_broadcast_i64x4(load32(w + 64 * half));
      const __m512i ql13 = _mm512_broadcast_i64x4(load32(w + 64 * half + 32));
      const __m512i q02 = _mm512_ternarylogic_epi32(_mm512_multishift_epi64_epi8(control02, qh), upper,
                                                    _mm512_and_si512(_mm512_srlv_epi16(ql02, shift), nibble), 0xea);
      const __m512i q13 = _mm512_ternarylogic_epi32(_mm512_multishift_epi64_epi8(control13, qh), upper,
                                                    _mm512_and_si512(_mm512_srlv_epi16(ql13, shift), nibble), 0xea);
      p[2 * half] = dot(q02, a->q + 128 * half);
      p[2 * half + 1] = dot(q13, a->q + 128 * half + 64);
    }
    const __m512i x = _mm512_add_epi32(_mm512_unpacklo_epi32(p[0], p[1]), _mm512_unpackhi_epi32(p[0], p[1]));
    const __m512i y = _mm512_add_epi32(_mm512_unpacklo_epi32(p[2], p[3]), _mm512_unpackhi_epi32(p[2], p[3]));
    const __m512i z = _mm512_add_epi32(_mm512_unpacklo_epi64(x, y), _mm512_unpackhi_epi64(x, y));
    const __m512i zero_point = _mm512_slli_epi32(_mm512_load_si512(a->s16), 5);
    const __m512i sums = _mm512_sub_epi32(_mm512_permutexvar_epi32(order, z), zero_point);
    const __m512 d = _mm512_permutexvar_ps(twice, _mm512_load_ps(a->d));
    _mm512_store_ps(to, _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sums), d), q6_scales(w)));
  }
};

// Units of 32 with an offset, which is a minimum of offset · scale; activations in two parts.
template <class Unit>
struct Units {
  using X = WideBlock;
  static constexpr int kTerms = 8;
  static constexpr size_t kBytes = kBlock / 32 * Unit::kBytes;

  Units(const uint8_t* /*w*/, int /*left*/) {}

  static __m512i wide_dot(__m512i unsigned_w, const WideBlock* a, int at) {
    const __m512i high = _mm512_slli_epi32(dot(unsigned_w, a->high + at), 7);
    return _mm512_dpbusd_epi32(high, unsigned_w, _mm512_load_si512(a->low + at));
  }

  void terms(const uint8_t* w, int /*j*/, const WideBlock* a, int columns, float* to) const {
    uint8_t rest[kBytes] = {};
    if (columns < kBlock) {  // what is left of a row, with zeros behind it
      __builtin_memcpy(rest, w, static_cast<size_t>((columns + 31) / 32) * Unit::kBytes);
      w = rest;
    }
    const auto pair = [&](int g) {
      const uint8_t* p = w + static_cast<size_t>(g) * Unit::kBytes;
      return join(Unit::quants(p), Unit::quants(p + 2 * Unit::kBytes));
    };
    const __m256i sums = sum_groups(wide_dot(pair(0), a, 0), wide_dot(pair(1), a, 64), wide_dot(pair(4), a, 128),
                                    wide_dot(pair(5), a, 192));
    const __m256 scale = _mm512_castps512_ps256(Unit::scales(w, 8));
    store_min_terms(sums, scale, _mm256_mul_ps(scale, _mm256_set1_ps(Unit::kOffset)), a, to);
  }
};

}  // namespace

void dot_q4_k(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  dot_by_blocks<Q4>(weights, stride, rows, x, k, out);
}

void dot_q6_k(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  dot_by_blocks<Q6>(weights, stride, rows, x, k, out);
}

void dot_q8_0(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  dot_by_blocks<Units<Q8Unit>>(weights, stride, rows, x, k, out);
}

void dot_mxfp4(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  dot_by_blocks<Units<MxUnit>>(weights, stride, rows, x, k, out);
}

}  // namespace doppler::cpu::avx512
#endif
