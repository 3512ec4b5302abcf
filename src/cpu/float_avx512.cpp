#if defined(__x86_64__)
// Rows of F32, F16 and BF16 times f32 activations, one token or many: the same two sums a product, lanes along the
// columns, so that both give the same bits.
#include "cpu/formats_avx512.h"
#include "cpu/reduce_avx512.h"
#include "cpu/simd_avx512.h"

namespace doppler::cpu::avx512 {
namespace {

constexpr int kRows = 4, kTokens = 3;  // products at once: 24 sums

struct F32 {
  static Vf whole(const uint8_t* row, int i) { return load(reinterpret_cast<const float*>(row) + i); }
  static Vf part(const uint8_t* row, int i, int n) { return load_n(reinterpret_cast<const float*>(row) + i, n); }
};
struct F16 {
  static Vf whole(const uint8_t* row, int i) { return load_f16(reinterpret_cast<const uint16_t*>(row) + i); }
  static Vf part(const uint8_t* row, int i, int n) { return load_f16_n(reinterpret_cast<const uint16_t*>(row) + i, n); }
};
struct BF16 {
  static Vf widen(__m256i raw) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16)); }
  static Vf whole(const uint8_t* row, int i) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + 2 * i)));
  }
  static Vf part(const uint8_t* row, int i, int n) {
    return widen(_mm256_maskz_loadu_epi16(low_lanes(n), row + 2 * i));
  }
};

// sums[r][t] = row r · x[t], still in lanes.
template <class Format, int R, int T>
inline void products(const uint8_t* w, size_t stride, const float* const* x, int k, Vf (*sums)[T]) {
  Vf even[R][T], odd[R][T];
  for (int r = 0; r < R; ++r) {
    for (int t = 0; t < T; ++t) even[r][t] = odd[r][t] = zero();
  }
  const auto row = [&](int r) { return w + static_cast<size_t>(r) * stride; };
  int i = 0;
  for (; i + 2 * kLanes <= k; i += 2 * kLanes) {
#pragma GCC unroll 4
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
    for (int t = 0; t < T; ++t) sums[r][t] = add(even[r][t], odd[r][t]);
  }
}

template <class Format>
void dot(const void* weights, size_t stride, int rows, const void* x, int k, float* out) {
  const float* token = static_cast<const float*>(x);
  by_rows(weights, stride, rows, out, [&](auto r, const uint8_t* w) {
    constexpr int R = decltype(r)::value;
    Vf sums[R];
    for (int i = 0; i < R; ++i) {  // one after the other, as they lie in memory
      Vf one[1][1];
      products<Format, 1, 1>(w + static_cast<size_t>(i) * stride, stride, &token, k, one);
      sums[i] = one[0][0];
    }
    return sum_rows<R>(sums);
  });
}

template <class Format, int T>
void multiply_tokens(const RowsRef& note, const float* const* x, int k, float* c) {
  const uint8_t* w = static_cast<const uint8_t*>(note.weights);
  int r = 0;
  for (; r + kRows <= note.rows; r += kRows) {
    Vf sums[kRows][T];
    products<Format, kRows, T>(w + static_cast<size_t>(r) * note.stride, note.stride, x, k, sums);
    for (int t = 0; t < T; ++t) {
      const Vf four[kRows] = {sums[0][t], sums[1][t], sums[2][t], sums[3][t]};
      _mm_storeu_ps(c + t * kTileRows + r, _mm512_castps512_ps128(sum_rows<kRows>(four)));
    }
  }
  for (; r < note.rows; ++r) {
    Vf sums[1][T];
    products<Format, 1, T>(w + static_cast<size_t>(r) * note.stride, note.stride, x, k, sums);
    for (int t = 0; t < T; ++t) {
      c[t * kTileRows + r] = _mm_cvtss_f32(_mm512_castps512_ps128(sum_rows<1>(&sums[0][t])));
    }
  }
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
    multiply_tokens<Format, kTokens>(note, some, k, c + t * kTileRows);
  }
  for (; t < tokens; ++t) {
    take(1);
    multiply_tokens<Format, 1>(note, some, k, c + t * kTileRows);
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

}  // namespace doppler::cpu::avx512
#endif
