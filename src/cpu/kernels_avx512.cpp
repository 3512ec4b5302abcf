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

constexpr Packing kPackQ4_K{strip_q4_k, pack_q4_k, few_q4_k, unpack_q4_k};
constexpr Packing kPackQ6_K{strip_q6_k, pack_q6_k, few_q6_k, unpack_q6_k};

}  // namespace
}  // namespace avx512

using namespace avx512;

const Kernels kAvx512Kernels = {
    .name = "avx512",
    .formats = {{dot_f32, note_rows, multiply_f32, kWholeRow, Input::kF32},
                {dot_f16, note_rows, multiply_f16, kWholeRow, Input::kF32},
                {dot_bf16, note_rows, multiply_bf16, kWholeRow, Input::kF32},
                {dot_q8_0, unpack_q8_0, multiply_wide, kTileDepth, Input::kInt15},
                {nullptr, nullptr, multiply_min, kTileDepth, Input::kInt8, &kPackQ4_K},
                {nullptr, nullptr, multiply_centred, kTileDepth, Input::kInt8, &kPackQ6_K},
                {dot_mxfp4, unpack_mxfp4, multiply_wide, kTileDepth, Input::kInt15}},
    .norm = norm,
    .add = add_rows,
    .softcap = softcap,
    .rope = rope,
    .glu = glu,
    .glu_interleaved = glu_interleaved,
    .axpy = axpy,
    .exp = exp_row,
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
