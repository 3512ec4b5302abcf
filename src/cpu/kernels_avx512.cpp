#if defined(__x86_64__)
// The table of the AVX-512 kernels.
#include "cpu/formats_avx512.h"
#include "cpu/simd_avx512.h"
#include "cpu/tile_avx512.h"

#define DOPPLER_ISA avx512
#include "cpu/attention_impl.h"

namespace doppler::cpu {
namespace avx512 {
namespace {

uint64_t stream(const void* data, size_t bytes) {
  const uint8_t* p = static_cast<const uint8_t*>(data);
  __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
  for (; bytes >= 256; bytes -= 256, p += 256) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) sum[i] = _mm512_add_epi64(sum[i], _mm512_loadu_si512(p + 64 * i));
  }
  // Not the intrinsic that adds lanes: it adds signed numbers, which these may overflow.
  alignas(64) uint64_t lanes[8];
  _mm512_store_si512(lanes, _mm512_add_epi64(_mm512_add_epi64(sum[0], sum[1]), _mm512_add_epi64(sum[2], sum[3])));
  uint64_t all = 0;
  for (const uint64_t lane : lanes) all += lane;
  return all;
}

// Sixteen vectors of a block at once: the block may be written over them.
void quantize_bytes(const float* x, int n, ByteBlock* out) {
  for (int start = 0; start < n; start += kBlock, ++out) {
    __m512 v[kBlock / 16];
    __m512i most = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (int i = 0; i < kBlock / 16; ++i) {
      const int left = n - start - 16 * i;
      v[i] = load_n(x + start + (left > 0 ? 16 * i : 0), left < 0 ? 0 : left < 16 ? left : 16);
      // Magnitudes order like their bits, NaN highest.
      most = _mm512_max_epi32(most, _mm512_and_epi32(_mm512_castps_si512(v[i]), _mm512_set1_epi32(0x7fffffff)));
    }
    const float highest = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(most))));
    const Scale scale(highest);
    __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (int i = 0; i < kBlock / 16; ++i) {
      const __m512i q = scale.usable ? _mm512_cvtps_epi32(mul(v[i], set1(127.0f / highest))) : _mm512_setzero_si512();
      _mm_store_si128(reinterpret_cast<__m128i*>(out->q + 16 * i), _mm512_cvtepi32_epi8(q));
      sum = _mm512_add_epi32(sum, q);
    }
    out->d = scale.usable ? highest / 127.0f : scale.other;
    out->zero = -128 * _mm512_reduce_add_epi32(sum);
  }
}

template <class Way>
constexpr Packing kPackQ4_K{strip_q4_k, pack_q4_k, gemv_q4_k<Way>, unpack_q4_k, row_q4_k, Way::kStrips};
template <class Way>
constexpr Packing kPackQ6_K{strip_q6_k, pack_q6_k, gemv_q6_k<Way>, unpack_q6_k, row_q6_k, Way::kStrips};

template <FormatId F, class Way>
constexpr Packing kPackCodes{strip_codes<F>,  pack_codes<F>,   gemv_codes<F, Way>,
                             unpack_codes<F>, row_of_codes<F>, Way::kStrips};

template <class Way, FormatId... F>
void code_formats(Format* formats) {
  ((formats[F] = {nullptr, nullptr, multiply_bytes, kTileDepth, Input::kInt8OrBytes, &kPackCodes<F, Way>}), ...);
}

// What is packed, for one way to fetch weights.
template <class Way>
void packed_formats(Format* formats) {
  formats[kFormatQ4_K] = {nullptr, nullptr, multiply_bytes, kTileDepth, Input::kInt8OrBytes, &kPackQ4_K<Way>};
  formats[kFormatQ6_K] = {nullptr, nullptr, multiply_bytes, kTileDepth, Input::kInt8OrBytes, &kPackQ6_K<Way>};
  code_formats<Way, kFormatQ4_0, kFormatQ4_1, kFormatQ5_0, kFormatQ5_1, kFormatQ2_K, kFormatQ3_K, kFormatQ5_K,
               kFormatIQ4_NL, kFormatIQ4_XS>(formats);
}

}  // namespace
}  // namespace avx512

using namespace avx512;

namespace {

constexpr Kernels kKernels = {
    .name = "avx512",
    .formats = {{dot_f32, ref_rows, multiply_f32, kWholeRow, Input::kF32},
                {dot_f16, ref_rows, multiply_f16, kWholeRow, Input::kF32},
                {dot_bf16, ref_rows, multiply_bf16, kWholeRow, Input::kF32},
                {dot_q8_0, unpack_q8_0, multiply_wide, kTileDepth, Input::kInt15},
                {},  // what is packed: packed_formats()
                {},
                {dot_mxfp4, unpack_mxfp4, multiply_wide, kTileDepth, Input::kInt15}},
    .min_gemm_tokens_packed = 25,  // measured, as that of AMD below: bench/results/cpu-notes.md
    .norm = norm,
    .add = add_rows,
    .softcap = softcap,
    .rope = rope,
    .glu = glu,
    .glu_interleaved = glu_interleaved,
    .axpy = axpy,
    .exp = exp_row,
    .convolve = convolve,
    .delta_step = delta_step,
    .quantize = quantize,
    .quantize_wide = quantize_wide,
    .quantize_group = quantize_group,
    .quantize_wide_group = quantize_wide_group,
    .quantize_bytes = quantize_bytes,
    .to_i16 = to_i16,
    .attend = attend,
    .merge = merge,
    .stream = stream,
};

Kernels for_this_machine() {
  Kernels kernels = kKernels;
  packed_formats<PrefetchTwoStrips>(kernels.formats);
  if (__builtin_cpu_is("amd")) {
    packed_formats<PrefetchOneStrip>(kernels.formats);
    kernels.min_gemm_tokens_packed = 41;
  }
  return kernels;
}

}  // namespace

const Kernels& avx512_kernels() {
  static const Kernels kernels = for_this_machine();
  return kernels;
}

}  // namespace doppler::cpu
#endif
