#if defined(__x86_64__)
// Rows of F32, F16 and BF16 times f32 activations, one token or many: the same two sums a product, lanes along the
// columns, so that both give the same bits.
#include "cpu/formats_avx2.h"
#include "cpu/simd_avx2.h"

namespace doppler::cpu::avx2 {
namespace {

constexpr int kRows = 2, kTokens = 3;  // products at once: 12 sums

struct F32 {
  static Vf whole(const uint8_t* row, int i) { return load(reinterpret_cast<const float*>(row) + i); }
  static Vf part(const uint8_t* row, int i, int n) { return load_n(reinterpret_cast<const float*>(row) + i, n); }
};
struct F16 {
  static Vf whole(const uint8_t* row, int i) { return load_f16(reinterpret_cast<const uint16_t*>(row) + i); }
  static Vf part(const uint8_t* row, int i, int n) { return load_f16_n(reinterpret_cast<const uint16_t*>(row) + i, n); }
};
struct BF16 {
  static Vf widen(__m128i raw) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16)); }
  static Vf whole(const uint8_t* row, int i) {
    return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + 2 * i)));
  }
  static Vf part(const uint8_t* row, int i, int n) {
    alignas(16) uint16_t some[8] = {};
    __builtin_memcpy(some, row + 2 * i, static_cast<size_t>(n) * 2);
    return widen(_mm_load_si128(reinterpret_cast<const __m128i*>(some)));
  }
};

// out[r][t] = row r · x[t]
template <class Format, int R, int T>
inline void products(const uint8_t* w, size_t stride, const float* const* x, int k, float (*out)[T]) {
  Vf even[R][T], odd[R][T];
  for (int r = 0; r < R; ++r) {
    for (int t = 0; t < T; ++t) even[r][t] = odd[r][t] = zero();
  }
  const auto row = [&](int r) { return w + static_cast<size_t>(r) * stride; };
  int i = 0;
  for (; i + 2 * kLanes <= k; i += 2 * kLanes) {
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) {
      const Vf a = Format::whole(row(r), i), b = Format::whole(row(r), i + kLanes);
#pragma GCC unroll 3
      for (int t = 0; t < T; ++t) {
        even[r][t] = fma(a, load(x[t] + i), even[r][t]);
        odd[r][t] = fma(b, load(x[t] + i + kLanes), odd[r][t]);
      }
    }
  }
  for (; i < k; i += kLanes) {
    const int n = k - i < kLanes ? k - i : kLanes;
    for (int r = 0; r < R; ++r) {
      for (int t = 0; t < T; ++t) {
        Vf& sum = i / kLanes % 2 ? odd[r][t] : even[r][t];
        sum = fma(Format::part(row(r), i, n), load_n(x[t] + i, n), sum);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int t = 0; t < T; ++t) out[r][t] = sum_lanes(add(even[r][t], odd[r][t]));
  }
}

template <class Format>
void dot(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  const float* token = static_cast<const float*>(x);
  for (int r = 0; r < rows; ++r) {
    float one[1][1];
    products<Format, 1, 1>(static_cast<const uint8_t*>(weights) + static_cast<size_t>(r) * stride, stride, &token, k,
                           one);
    out[r] = one[0][0];
  }
}

template <class Format, int R, int T>
int gemv_rows(const RowsRef& note, int r, const float* const* x, int k, float* c) {
  for (; r + R <= note.rows; r += R) {
    float sums[R][T];
    const uint8_t* w = static_cast<const uint8_t*>(note.weights) + static_cast<size_t>(r) * note.stride;
    products<Format, R, T>(w, note.stride, x, k, sums);
    for (int i = 0; i < R; ++i) {
      for (int t = 0; t < T; ++t) c[t * kTileRows + r + i] = sums[i][t];
    }
  }
  return r;
}

template <class Format>
void multiply(const void* tile, int k, const void* const* x, int tokens, float* c) {
  const RowsRef& note = *static_cast<const RowsRef*>(tile);
  int t = 0;
  const float* some[kTokens];
  const auto take = [&](int n) {
    for (int i = 0; i < n; ++i) some[i] = static_cast<const float*>(x[t + i]);
  };
  for (; t + kTokens <= tokens; t += kTokens) {
    take(kTokens);
    const int r = gemv_rows<Format, kRows, kTokens>(note, 0, some, k, c + t * kTileRows);
    gemv_rows<Format, 1, kTokens>(note, r, some, k, c + t * kTileRows);
  }
  for (; t < tokens; ++t) {
    take(1);
    const int r = gemv_rows<Format, kRows, 1>(note, 0, some, k, c + t * kTileRows);
    gemv_rows<Format, 1, 1>(note, r, some, k, c + t * kTileRows);
  }
}

}  // namespace

void dot_f32(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  dot<F32>(weights, stride, rows, x, k, out);
}
void dot_f16(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  dot<F16>(weights, stride, rows, x, k, out);
}
void dot_bf16(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  dot<BF16>(weights, stride, rows, x, k, out);
}

void ref_rows(const void* weights, size_t stride, int rows, int /*k*/, int /*k0*/, int /*depth*/, void* tile) {
  *static_cast<RowsRef*>(tile) = {weights, stride, rows};
}
void multiply_f32(const void* tile, int k, const void* const* x, size_t, int tokens, float* c, bool) {
  multiply<F32>(tile, k, x, tokens, c);
}
void multiply_f16(const void* tile, int k, const void* const* x, size_t, int tokens, float* c, bool) {
  multiply<F16>(tile, k, x, tokens, c);
}
void multiply_bf16(const void* tile, int k, const void* const* x, size_t, int tokens, float* c, bool) {
  multiply<BF16>(tile, k, x, tokens, c);
}

}  // namespace doppler::cpu::avx2
#endif
