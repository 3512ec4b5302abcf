// The multiplications of each weight format with AVX2; see kernels.h for their meaning.
#pragma once

#include "cpu/kernels.h"

namespace doppler::cpu::avx2 {

void dot_f32(const void* weights, size_t stride, int rows, const void* x, int k, float* out);
void dot_f16(const void* weights, size_t stride, int rows, const void* x, int k, float* out);
void dot_bf16(const void* weights, size_t stride, int rows, const void* x, int k, float* out);
void dot_q8_0(const void* weights, size_t stride, int rows, const void* x, int k, float* out);
void dot_q4_k(const void* weights, size_t stride, int rows, const void* x, int k, float* out);
void dot_q6_k(const void* weights, size_t stride, int rows, const void* x, int k, float* out);
void dot_mxfp4(const void* weights, size_t stride, int rows, const void* x, int k, float* out);

// Of formats whose weights are small codes (code_blocks.h).
template <FormatId F>
void dot_codes(const void* weights, size_t stride, int rows, const void* x, int k, float* out);
template <FormatId F>
void unpack_codes(const void* weights, size_t stride, int rows, int k, int k0, int depth, void* tile);

// Floats are multiplied where they lie: a tile is a RowsRef.
void ref_rows(const void* weights, size_t stride, int rows, int k, int k0, int depth, void* tile);
void unpack_q8_0(const void* weights, size_t stride, int rows, int k, int k0, int depth, void* tile);
void unpack_q4_k(const void* weights, size_t stride, int rows, int k, int k0, int depth, void* tile);
void unpack_q6_k(const void* weights, size_t stride, int rows, int k, int k0, int depth, void* tile);
void unpack_mxfp4(const void* weights, size_t stride, int rows, int k, int k0, int depth, void* tile);

void multiply_f32(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c, bool first);
void multiply_f16(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c, bool first);
void multiply_bf16(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c, bool first);
// Weights of a group of 32 are scale · q − min, 0 ≤ q ≤ 15.
void multiply_min(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c, bool first);
// The same with 0 ≤ q ≤ 31; and of a group of 16, 0 ≤ q ≤ 7.
void multiply_min5(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c, bool first);
void multiply_min16(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c, bool first);
// Weights of a group of 32 are scale · q, −127 ≤ q ≤ 127.
void multiply_levels(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c,
                     bool first);
// Weights of a group of 16 are scale · (q − 32), 0 ≤ q ≤ 63.
void multiply_centred(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c,
                      bool first);
// Weights of a group of 32 are scale · q, q signed; activations of 15 bits.
void multiply_wide(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c, bool first);

}  // namespace doppler::cpu::avx2
