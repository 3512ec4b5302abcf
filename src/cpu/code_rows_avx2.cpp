#if defined(__x86_64__)
// The products of weights that are small codes (code_blocks.h) where they lie: rows times one token, and rows into
// tiles.
#include "cpu/block_sums_avx2.h"
#include "cpu/code_vectors.h"
#include "cpu/formats_avx2.h"

namespace doppler::cpu::avx2 {
namespace {

// What is multiplied: codes, or the levels that they stand for.
template <class T>
inline __m256i quants(const uint8_t* row, int g) {
  const __m256i q = row_codes<T>(row, g);
  if (!T::kLevels) return q;
  const __m128i levels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Levels));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(levels), q);
}
template <class T>
constexpr bool kSubtracts = !T::kLevels;  // a minimum, or the zero point times the scale

// Scale and minimum of eight parts of a block from part `first` on; of `parts` in all.
template <class T>
inline void numbers(const uint8_t* block, int first, int parts, Vf& scale, Vf& min) {
  if constexpr (T::kColumns == kBlock) {
    const CodeNumbers n = T::numbers(block);
    const auto floats = [&](const uint8_t* bytes, int zero_point) {
      const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes + first));
      return _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_cvtepu8_epi32(eight), _mm256_set1_epi32(zero_point)));
    };
    scale = mul(set1(half_at(block + T::kD)), floats(n.scale, T::kScaleZero));
    if (T::kMin) min = mul(set1(half_at(block + T::kDmin)), floats(n.min, 0));
  } else {
    alignas(16) uint16_t d[8] = {}, m[8] = {};
    for (int u = 0; u < 8 && u < parts; ++u) {
      __builtin_memcpy(d + u, block + static_cast<size_t>(u) * T::kBytes + T::kD, 2);
      if (T::kMin) __builtin_memcpy(m + u, block + static_cast<size_t>(u) * T::kBytes + T::kDmin, 2);
    }
    scale = load_f16(d);
    if (T::kMin) min = sub(zero(), load_f16(m));
  }
  if (!T::kMin) min = mul(scale, set1(T::kZero));
}

inline __m256i products(__m256i unsigned_w, __m256i x) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(unsigned_w, x), _mm256_set1_epi16(1));
}

template <class T>
struct CodeRows {
  using X = ActBlock;
  static constexpr int kTerms = kCodeParts<T>;
  static constexpr size_t kBytes = kCodeBytes<T>;

  static void terms(const uint8_t* w, const ActBlock* a, int columns, float* to) {
    __m256i p[8];
    const int groups = T::kColumns == kBlock || columns >= kBlock ? 8 : (columns + kGroup - 1) / kGroup;
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      if (T::kColumns < kBlock && g >= groups) {
        p[g] = _mm256_setzero_si256();
        continue;
      }
      const __m256i q = quants<T>(w, g), x = load32(a->q + group_offset(g));
      p[g] = T::kLevels ? products(_mm256_abs_epi8(q), _mm256_sign_epi8(x, q)) : products(q, x);
    }
    Vf scale, min;
    const auto store_terms = [&](int first, __m256i sums, Vf d, Vf ds) {
      numbers<T>(w, first, groups, scale, min);
      const Vf scaled = mul(mul(_mm256_cvtepi32_ps(sums), d), scale);
      store(to + first, kSubtracts<T> ? fnma(min, ds, scaled) : scaled);
    };
    if (T::kPart == kGroup) return store_terms(0, sum_eight(p), load(a->d), load(a->ds));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // lower and upper half side by side
    __m256i sums[2];
    sum_halves(p, sums[0], sums[1]);
    for (int i = 0; i < 2; ++i) {
      const __m256i twice = _mm256_add_epi32(_mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3), _mm256_set1_epi32(4 * i));
      const Vf d = _mm256_permutevar8x32_ps(load(a->d), twice);
      const Vf ds = mul(mul(_mm256_cvtepi32_ps(load32(a->zero16 + 8 * i)), set1(-1.0f / 32)), d);
      store_terms(8 * i, _mm256_permutevar8x32_epi32(sums[i], order), d, ds);
    }
  }
};

}  // namespace

template <FormatId F>
void dot_codes(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  dot_by_blocks<CodeRows<Codes<F>>>(weights, stride, rows, x, k, out);
}

// Rows past the last are the last again: their results are never read.
template <FormatId F>
void unpack_codes(const void* weights, size_t stride, int rows, int k, int k0, int depth, void* to) {
  using T = Codes<F>;
  QuantTile* tile = static_cast<QuantTile*>(to);
  const uint8_t* base = static_cast<const uint8_t*>(weights) + static_cast<size_t>(k0 / kBlock) * kCodeBytes<T>;
  const int all = T::kColumns == kBlock ? depth / kGroup : (k + kGroup - 1) / kGroup - k0 / kGroup;  // the row has
  for (int quarter = 0; quarter < 4; ++quarter) {
    const uint8_t* row[kQuarter];
    for (int i = 0; i < kQuarter; ++i) {
      const int r = quarter * kQuarter + i;
      row[i] = base + static_cast<size_t>(r < rows ? r : rows - 1) * stride;
    }
    for (int g = 0; g < depth / kGroup; ++g) {
      __m256i v[8];
      for (int i = 0; i < kQuarter; ++i) v[i] = g < all ? quants<T>(row[i], g) : _mm256_setzero_si256();
      transpose8(v);
      for (int i = 0; i < 8; ++i) _mm256_store_si256(reinterpret_cast<__m256i*>(tile->q[g * 8 + i][quarter]), v[i]);
    }
    constexpr int kParts = kCodeParts<T>;
    for (int part = 0; part * T::kPart < depth; part += 8) {
      __m256i s[8], m[8];
      const size_t at = static_cast<size_t>(part / kParts) * kCodeBytes<T>;
      for (int i = 0; i < kQuarter; ++i) {
        Vf scale, min;
        numbers<T>(row[i] + at, part % kParts, all - part, scale, min);
        s[i] = _mm256_castps_si256(scale);
        m[i] = _mm256_castps_si256(min);
      }
      transpose8(s);
      transpose8(m);
      for (int i = 0; i < 8; ++i) {
        _mm256_store_ps(tile->scale[part + i] + quarter * kQuarter, _mm256_castsi256_ps(s[i]));
        if (kSubtracts<T>) _mm256_store_ps(tile->min[part + i] + quarter * kQuarter, _mm256_castsi256_ps(m[i]));
      }
    }
  }
}

#define DOPPLER_CODES(format)                                                          \
  template void dot_codes<format>(const void*, size_t, int, const void*, int, float*); \
  template void unpack_codes<format>(const void*, size_t, int, int, int, int, void*);
DOPPLER_CODES(kFormatQ4_0)
DOPPLER_CODES(kFormatQ4_1)
DOPPLER_CODES(kFormatQ5_0)
DOPPLER_CODES(kFormatQ5_1)
DOPPLER_CODES(kFormatQ2_K)
DOPPLER_CODES(kFormatQ3_K)
DOPPLER_CODES(kFormatQ5_K)
DOPPLER_CODES(kFormatIQ4_NL)
DOPPLER_CODES(kFormatIQ4_XS)
#undef DOPPLER_CODES

}  // namespace doppler::cpu::avx2
#endif
