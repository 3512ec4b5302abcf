#include "cpu/linear.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "format/decode.h"

namespace doppler::cpu {

const Format* format_of(const Kernels& kernels, DType dtype) {
  switch (dtype) {
    case DType::kF32: return &kernels.formats[kFormatF32];
    case DType::kF16: return &kernels.formats[kFormatF16];
    case DType::kBF16: return &kernels.formats[kFormatBF16];
    case DType::kQ8_0: return &kernels.formats[kFormatQ8_0];
    case DType::kQ4_K: return &kernels.formats[kFormatQ4_K];
    case DType::kQ6_K: return &kernels.formats[kFormatQ6_K];
    case DType::kMXFP4: return &kernels.formats[kFormatMXFP4];
    case DType::kQ4_0: return &kernels.formats[kFormatQ4_0];
    case DType::kQ4_1: return &kernels.formats[kFormatQ4_1];
    case DType::kQ5_0: return &kernels.formats[kFormatQ5_0];
    case DType::kQ5_1: return &kernels.formats[kFormatQ5_1];
    case DType::kQ2_K: return &kernels.formats[kFormatQ2_K];
    case DType::kQ3_K: return &kernels.formats[kFormatQ3_K];
    case DType::kQ5_K: return &kernels.formats[kFormatQ5_K];
    case DType::kIQ4_NL: return &kernels.formats[kFormatIQ4_NL];
    case DType::kIQ4_XS: return &kernels.formats[kFormatIQ4_XS];
    default: return nullptr;
  }
}

Linear make_linear(const Kernels& kernels, const Tensor& tensor) {
  const size_t need = static_cast<size_t>(tensor.rows()) * tensor.stride();
  if (tensor.bytes.size() < need) {
    fail({.code = ErrorCode::kFormat,
          .what = "a tensor has fewer bytes than its shape needs",
          .where = tensor.name,
          .expected = std::to_string(need),
          .got = std::to_string(tensor.bytes.size())});
  }
  Linear m;
  m.data = tensor.bytes.data();
  m.stride = tensor.stride();
  m.rows = static_cast<int>(tensor.shape.size() == 3 ? tensor.shape[1] : tensor.rows());
  m.cols = static_cast<int>(tensor.cols());
  m.dtype = tensor.dtype;
  m.format = format_of(kernels, tensor.dtype);
  return m;
}

Linear Linear::expert(int e) const {
  Linear m = *this;
  m.data += static_cast<size_t>(e) * strides(rows) * stride;
  if (bias) m.bias += static_cast<size_t>(e) * static_cast<size_t>(rows);
  return m;
}

namespace {

static_assert(sizeof(ByteBlock) <= sizeof(ActBlock), "GEMV and GEMM share their rows");
size_t block_bytes(Input input) { return input == Input::kInt15 ? sizeof(WideBlock) : sizeof(ActBlock); }

// Bytes from the first column of many tokens' activations to column k0.
size_t column_offset(Input input, int k0) {
  if (input == Input::kF32) return 0;
  if (input == Input::kInt8OrBytes) return static_cast<size_t>(k0 / kBlock) * sizeof(ByteBlock);
  return static_cast<size_t>(k0 / kBlock) * block_bytes(input);
}

}  // namespace

size_t input_row_bytes(Input input, int cols) {
  if (input == Input::kF32) return static_cast<size_t>(cols) * sizeof(float);
  const size_t blocks = static_cast<size_t>((cols + kBlock - 1) / kBlock);
  return blocks * block_bytes(input);
}

void quantize_input(const Kernels& kernels, Input input, bool gemm, const float* x, int n, void* out) {
  if (input == Input::kInt15) return kernels.quantize_wide(x, n, static_cast<WideBlock*>(out));
  if (input == Input::kInt8OrBytes && gemm) return kernels.quantize_bytes(x, n, static_cast<ByteBlock*>(out));
  kernels.quantize(x, n, static_cast<ActBlock*>(out));
}

bool by_groups(Input input, bool gemm) { return !(input == Input::kInt8OrBytes && gemm); }

void quantize_input_group(const Kernels& kernels, Input input, const float* x, int n, void* out, int first) {
  const int block = first / kBlock, group = first % kBlock / kGroup;
  if (input == Input::kInt15) return kernels.quantize_wide_group(x, n, static_cast<WideBlock*>(out) + block, group);
  kernels.quantize_group(x, n, static_cast<ActBlock*>(out) + block, group);
}

size_t decoded_floats(const Linear& matrix) {
  return matrix.format ? 0 : static_cast<size_t>(kMaxTiles * kTileRows) * static_cast<size_t>(matrix.cols);
}

void gemv_rows(const Kernels& kernels, const Linear& m, int first, int count, const void* const* x, int tokens,
               float* out, size_t pitch, const LinearScratch& scratch, const void* next) {
  const std::byte* rows = m.data + m.strides(first) * m.stride;
  if (m.packed) m.format->packing->gemv(rows, count, m.cols, x, tokens, out, pitch, next);
  for (int t = 0; t < tokens; ++t, out += pitch) {
    if (m.format && !m.packed) {
      m.format->dot(rows, m.stride, count, x[t], m.cols, out);
    } else if (!m.format) {
      for (int r = 0; r < count; ++r) {
        decode_row(m.dtype, rows + static_cast<size_t>(r) * m.stride, scratch.decoded, static_cast<size_t>(m.cols));
        kernels.formats[kFormatF32].dot(scratch.decoded, 0, 1, x[t], m.cols, out + r);
      }
    }
    if (m.bias) kernels.add(out, m.bias + first, out, count);
  }
}

void gemm_tiles(const Kernels& kernels, const Linear& m, int first, int count, const void* const* x, int tokens,
                float* c, const LinearScratch& scratch) {
  const std::byte* rows = m.data + m.strides(first) * m.stride;
  size_t stride = m.stride;
  const Format* format = m.format;
  if (!format) {
    const size_t cols = static_cast<size_t>(m.cols);
    for (int r = 0; r < count; ++r) {
      decode_row(m.dtype, rows + static_cast<size_t>(r) * m.stride, scratch.decoded + static_cast<size_t>(r) * cols,
                 cols);
    }
    rows = reinterpret_cast<const std::byte*>(scratch.decoded);
    stride = cols * sizeof(float);
    format = &kernels.formats[kFormatF32];
  }
  // A quantised tile covers whole groups; the activations behind the last column are zero.
  const bool quantised = format->input != Input::kF32;
  const int cols = quantised ? (m.cols + kGroup - 1) / kGroup * kGroup : m.cols;
  for (int k0 = 0; k0 < cols; k0 += format->depth) {
    const int depth = std::min(format->depth, cols - k0);
    const size_t offset = column_offset(format->input, k0);
    for (int r = 0; r < count; r += kTileRows) {
      const std::byte* tile_rows = rows + m.strides(r) * stride;
      const int here = std::min(kTileRows, count - r);
      if (m.packed) {
        format->packing->unpack(tile_rows, here, m.cols, k0, depth, scratch.tile);
      } else {
        format->unpack(tile_rows, stride, here, m.cols, k0, depth, scratch.tile);
      }
      format->multiply(scratch.tile, depth, x, offset, tokens, c + r * tokens, k0 == 0);
    }
  }
  for (int r = 0; m.bias && r < count; r += kTileRows) {
    for (int t = 0; t < tokens; ++t) {
      float* row = c + (static_cast<ptrdiff_t>(r) * tokens + t * kTileRows);
      kernels.add(row, m.bias + first + r, row, std::min(kTileRows, count - r));
    }
  }
}

}  // namespace doppler::cpu
