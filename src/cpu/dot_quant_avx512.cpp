#if defined(__x86_64__)
// Rows of Q8_0 and MXFP4 times one row of activations.
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

// Units of 32 with an offset, which is a minimum of offset · scale; activations in two parts.
template <class Unit>
struct Units {
  using X = WideBlock;
  static constexpr size_t kBytes = kBlock / 32 * Unit::kBytes;

  static __m512i wide_dot(__m512i unsigned_w, const WideBlock* a, int at) {
    const __m512i high = _mm512_slli_epi32(dot(unsigned_w, a->high + at), 7);
    return _mm512_dpbusd_epi32(high, unsigned_w, _mm512_load_si512(a->low + at));
  }

  static void terms(const uint8_t* w, const WideBlock* a, int columns, float* to) {
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

void dot_q8_0(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  dot_by_blocks<Units<Q8Unit>>(weights, stride, rows, x, k, out);
}

void dot_mxfp4(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  dot_by_blocks<Units<MxUnit>>(weights, stride, rows, x, k, out);
}

}  // namespace doppler::cpu::avx512
#endif
