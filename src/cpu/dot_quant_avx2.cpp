#if defined(__x86_64__)
// Rows of Q4_K, Q6_K, Q8_0 and MXFP4 times one row of int8 activations with AVX2. Products of uint8 and int8 are summed
// in pairs in int16, which the ranges of Q4_K and Q6_K cannot overflow; the others move their sign to the activation.
#include "cpu/block_sums_avx2.h"
#include "cpu/formats_avx2.h"

namespace doppler::cpu::avx2 {
namespace {

inline __m256i products(__m256i unsigned_w, __m256i x) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(unsigned_w, x), _mm256_set1_epi16(1));
}
inline __m256i group(const ActBlock* a, int g) { return load32(a->q + group_offset(g)); }

struct Q4 {
  using X = ActBlock;
  static constexpr int kTerms = 8;
  static constexpr size_t kBytes = kQ4Bytes;
  static void terms(const uint8_t* w, const ActBlock* a, int /*columns*/, float* to) {
    __m256i p[8];
    for (int c = 0; c < 4; ++c) {
      __m256i even, odd;
      q4_groups(w, c, even, odd);
      p[2 * c] = products(even, group(a, 2 * c));
      p[2 * c + 1] = products(odd, group(a, 2 * c + 1));
    }
    Vf scales, mins;
    q4_scales(w, scales, mins);
    const Vf scaled = mul(mul(_mm256_cvtepi32_ps(sum_eight(p)), load(a->d)), scales);
    store(to, fnma(mins, load(a->ds), scaled));
  }
};

struct Q6 {
  using X = ActBlock;
  static constexpr int kTerms = 16;
  static constexpr size_t kBytes = kQ6Bytes;
  static void terms(const uint8_t* w, const ActBlock* a, int /*columns*/, float* to) {
    const __m256i low_twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    const __m256i high_twice = _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7);
    const __m256i pairs = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // lower and upper half side by side
    __m256i p[8];
    for (int half = 0; half < 2; ++half) {
      __m256i q[4];
      q6_groups(w, half, q);
      for (int i = 0; i < 4; ++i) p[4 * half + i] = products(q[i], group(a, 4 * half + i));
    }
    __m256i sums0, sums1;
    sum_halves(p, sums0, sums1);
    const auto centred = [&](__m256i sums, const int32_t* zero) {
      return _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_permutevar8x32_epi32(sums, pairs), load32(zero)));
    };
    Vf low, high;
    q6_scales(w, low, high);
    const Vf d = load(a->d);
    store(to, mul(mul(centred(sums0, a->zero16), _mm256_permutevar8x32_ps(d, low_twice)), low));
    store(to + 8, mul(mul(centred(sums1, a->zero16 + 8), _mm256_permutevar8x32_ps(d, high_twice)), high));
  }
};

// Activations in two parts.
template <class Unit>
struct Units {
  using X = WideBlock;
  static constexpr int kTerms = 8;
  static constexpr size_t kBytes = kBlock / 32 * Unit::kBytes;
  static void terms(const uint8_t* w, const WideBlock* a, int columns, float* to) {
    __m256i p[8];
    float d[8];
    for (int g = 0; g < 8; ++g, w += Unit::kBytes) {
      const bool there = g * 32 < columns;
      const __m256i q = there ? Unit::quants(w) : _mm256_setzero_si256();
      const __m256i magnitude = _mm256_sign_epi8(q, q);
      const __m256i high = products(magnitude, _mm256_sign_epi8(load32(a->high + group_offset(g)), q));
      const __m256i low = products(magnitude, _mm256_sign_epi8(load32(a->low + group_offset(g)), q));
      p[g] = _mm256_add_epi32(_mm256_slli_epi32(high, 7), low);
      d[g] = there ? Unit::scale(w) : 0.0f;
    }
    store(to, mul(mul(_mm256_cvtepi32_ps(sum_eight(p)), load(a->d)), load(d)));
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

}  // namespace doppler::cpu::avx2
#endif
