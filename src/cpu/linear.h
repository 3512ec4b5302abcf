// A weight matrix and how to multiply with it, whatever its format: GEMV row by row for few tokens, GEMM tile by tile
// for many.
#pragma once

#include "cpu/kernels.h"
#include "format/tensor.h"

namespace doppler::cpu {

struct Linear {
  const std::byte* data = nullptr;
  size_t stride = 0;  // bytes from row to row, or from strip to strip
  bool packed = false;
  int rows = 0, cols = 0;
  DType dtype = DType::kF32;
  const Format* format = nullptr;  // null: rows are decoded to f32 first
  const float* bias = nullptr;     // [rows], or null

  Input input() const { return format ? format->input : Input::kF32; }
  // Strides that `count` rows take: one each, or one for each strip of them.
  size_t strides(int count) const {
    return static_cast<size_t>(packed ? (count + kStripRows - 1) / kStripRows : count);
  }
  // The matrix of one expert of a [experts, rows, cols] tensor.
  Linear expert(int e) const;
};

// The kernels' format for a weight type, or null where there is none.
const Format* format_of(const Kernels& kernels, DType dtype);

// A matrix, or for [experts, rows, cols] the first expert's. Fails when the tensor's bytes are too few for its shape.
Linear make_linear(const Kernels& kernels, const Tensor& tensor);

// Bytes an activation row of `cols` takes.
size_t input_row_bytes(Input input, int cols);
// An f32 row as the products with few or with many tokens read it (`out` may be where x is, if not by_groups); or one
// group of n ≤ 32 of it, those from column `first` on, if by_groups: no number depends on those of another group.
void quantize_input(const Kernels& kernels, Input input, bool gemm, const float* x, int n, void* out);
bool by_groups(Input input, bool gemm);
void quantize_input_group(const Kernels& kernels, Input input, const float* x, int n, void* out, int first);

// Tiles that are multiplied with many tokens at once, at most. Their results, the activations of a slice of columns and
// the tile itself should fit in a core's second cache.
inline constexpr int kMaxTiles = 4;

// What one thread needs to multiply with any of the model's matrices.
struct LinearScratch {
  std::byte* tile;  // kTileBytes
  float* decoded;   // decoded_floats()
};
size_t decoded_floats(const Linear& matrix);

// out[t · pitch + i] = row (first + i) · x[t] (+ bias) for `count` rows and up to kMaxGemvTokens tokens. The first row
// of a packed matrix is a multiple of kStripRows, here and below. `next` as in Packing::gemv.
void gemv_rows(const Kernels& kernels, const Linear& matrix, int first, int count, const void* const* x, int tokens,
               float* out, size_t pitch, const LinearScratch& scratch, const void* next = nullptr);

// c [tiles][tokens][kTileRows] = rows first … first+count-1, in tiles of kTileRows, times each x[t] (+ bias). The
// activations of one slice of columns pass all tiles before the next slice, so that they come from a near cache.
void gemm_tiles(const Kernels& kernels, const Linear& matrix, int first, int count, const void* const* x, int tokens,
                float* c, const LinearScratch& scratch);

}  // namespace doppler::cpu
