#if defined(__x86_64__)
// The table of the AVX2 kernels.
#include "cpu/formats_avx2.h"
#include "cpu/simd_avx2.h"
#include "cpu/tile_avx2.h"

#define DOPPLER_ISA avx2
#include "cpu/attention_impl.h"

namespace doppler::cpu {
namespace avx2 {
namespace {

uint64_t stream(const void* data, size_t bytes) {
  const uint8_t* p = static_cast<const uint8_t*>(data);
  __m256i sum[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
  for (; bytes >= 128; bytes -= 128, p += 128) {
    for (int i = 0; i < 4; ++i) {
      sum[i] = _mm256_add_epi64(sum[i], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32 * i)));
    }
  }
  const __m256i all = _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
  return static_cast<uint64_t>(_mm256_extract_epi64(all, 0)) + static_cast<uint64_t>(_mm256_extract_epi64(all, 1)) +
         static_cast<uint64_t>(_mm256_extract_epi64(all, 2)) + static_cast<uint64_t>(_mm256_extract_epi64(all, 3));
}

template <FormatId F, MultiplyFn Multiply>
constexpr Format kCodeFormat{dot_codes<F>, unpack_codes<F>, Multiply, kTileDepth, Input::kInt8};

}  // namespace
}  // namespace avx2

using namespace avx2;

const Kernels kAvx2Kernels = {
    .name = "avx2",
    .formats = {{dot_f32, ref_rows, multiply_f32, kWholeRow, Input::kF32},
                {dot_f16, ref_rows, multiply_f16, kWholeRow, Input::kF32},
                {dot_bf16, ref_rows, multiply_bf16, kWholeRow, Input::kF32},
                {dot_q8_0, unpack_q8_0, multiply_wide, kTileDepth, Input::kInt15},
                {dot_q4_k, unpack_q4_k, multiply_min, kTileDepth, Input::kInt8},
                {dot_q6_k, unpack_q6_k, multiply_centred, kTileDepth, Input::kInt8},
                {dot_mxfp4, unpack_mxfp4, multiply_wide, kTileDepth, Input::kInt15},
                kCodeFormat<kFormatQ4_0, multiply_min>,
                kCodeFormat<kFormatQ4_1, multiply_min>,
                kCodeFormat<kFormatQ5_0, multiply_min5>,
                kCodeFormat<kFormatQ5_1, multiply_min5>,
                kCodeFormat<kFormatQ2_K, multiply_min16>,
                kCodeFormat<kFormatQ3_K, multiply_min16>,
                kCodeFormat<kFormatQ5_K, multiply_min5>,
                kCodeFormat<kFormatIQ4_NL, multiply_levels>,
                kCodeFormat<kFormatIQ4_XS, multiply_levels>},
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
    .to_i16 = to_i16,
    .attend = attend,
    .merge = merge,
    .stream = stream,
};

}  // namespace doppler::cpu
#endif
