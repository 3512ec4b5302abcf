// The multiplications of each weight format with AVX-512; see kernels.h for their meaning.
#pragma once

#include "cpu/kernels.h"

namespace doppler::cpu::avx512 {

void dot_f32(const void* weights, size_t stride, int rows, const void* x, int k, float* out);
void dot_f16(const void* weights, size_t stride, int rows, const void* x, int k, float* out);
void dot_bf16(const void* weights, size_t stride, int rows, const void* x, int k, float* out);
void dot_q8_0(const void* weights, size_t stride, int rows, const void* x, int k, float* out);
void dot_mxfp4(const void* weights, size_t stride, int rows, const void* x, int k, float* out);

size_t strip_q4_k(int cols);
size_t strip_q6_k(int cols);
void pack_q4_k(const void* weights, size_t stride, int rows, int cols, void* strip);
void pack_q6_k(const void* weights, size_t stride, int rows, int cols, void* strip);
void unpack_q4_k(const void* strips, int rows, int cols, int k0, int depth, void* tile);
void unpack_q6_k(const void* strips, int rows, int cols, int k0, int depth, void* tile);
void row_q4_k(const void* strip, int row, int cols, float* out);
void row_q6_k(const void* strip, int row, int cols, float* out);

// How weights come from memory when tokens are few. To the bit the same result; what is fast on one maker's machine is
// slow on another's (bench/results/cpu-notes.md).
// AMD: one after another, each line fetched once and not kept.
struct PrefetchOneStrip {
  static constexpr int kStrips = 1;
  static constexpr ptrdiff_t kAhead = 8192;
  static void fetch(const uint8_t*, const uint8_t* ahead) { __builtin_prefetch(ahead, 0, 0); }
};
// Intel: two at once, each line fetched far ahead into the second cache and then into the first.
struct PrefetchTwoStrips {
  static constexpr int kStrips = 2;
  static constexpr ptrdiff_t kAhead = 32768;
  static void fetch(const uint8_t* p, const uint8_t* ahead) {
    __builtin_prefetch(ahead, 0, 2);
    __builtin_prefetch(p + 2048, 0, 3);
  }
};
template <class Prefetch>
void gemv_q4_k(const void* strips, int rows, int cols, const void* const* x, int tokens, float* out, size_t pitch,
               const void* next);
template <class Prefetch>
void gemv_q6_k(const void* strips, int rows, int cols, const void* const* x, int tokens, float* out, size_t pitch,
               const void* next);

// Of formats whose weights are small codes (code_blocks.h), in strips, too.
template <FormatId F>
size_t strip_codes(int cols);
template <FormatId F>
void pack_codes(const void* weights, size_t stride, int rows, int cols, void* strip);
template <FormatId F>
void unpack_codes(const void* strips, int rows, int cols, int k0, int depth, void* tile);
template <FormatId F>
void row_of_codes(const void* strip, int row, int cols, float* out);
template <FormatId F, class Prefetch>
void gemv_codes(const void* strips, int rows, int cols, const void* const* x, int tokens, float* out, size_t pitch,
                const void* next);

// Floats are multiplied where they lie: a tile is a RowsRef.
void ref_rows(const void* weights, size_t stride, int rows, int k, int k0, int depth, void* tile);
void unpack_q8_0(const void* weights, size_t stride, int rows, int k, int k0, int depth, void* tile);
void unpack_mxfp4(const void* weights, size_t stride, int rows, int k, int k0, int depth, void* tile);

void multiply_f32(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c, bool first);
void multiply_f16(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c, bool first);
void multiply_bf16(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c, bool first);
// ByteTile times ByteBlock.
void multiply_bytes(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c, bool first);
// QuantTile times WideBlock.
void multiply_wide(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c, bool first);

}  // namespace doppler::cpu::avx512
