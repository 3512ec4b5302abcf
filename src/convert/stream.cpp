#include "convert/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/error.h"
#include "convert/quantize.h"
#include "convert/repack_mxfp4.h"
#include "format/decode.h"

namespace doppler {
namespace {

// Weights of one piece: enough rows to keep every thread busy, 16 MiB at most as f32.
constexpr int64_t kPieceWeights = 4 << 20;

RdrrTensorEntry entry_for(const MappedTensor& tensor, DType dtype) {
  return {tensor.rule.name, tensor.slot, dtype, tensor.shape, tensor.rule.role, {}, 0};
}

// What quantising one row came to.
struct RowResult {
  double error_squares = 0, source_squares = 0;
  enum : uint8_t { kFine, kNotFinite, kTooLarge } fault = kFine;
};

RowResult store_row(const Tensor& source, int64_t row, DType dtype, std::byte* out, float* values, float* stored) {
  const auto cols = static_cast<size_t>(source.cols());
  RowResult result;
  decode_row(source.dtype, source.row(row), values, cols);
  if (!all_finite(values, cols)) {
    result.fault = RowResult::kNotFinite;
    return result;
  }
  float largest = 0;
  for (size_t i = 0; i < cols; ++i) {
    largest = std::max(largest, std::abs(values[i]));
    result.source_squares += static_cast<double>(values[i]) * values[i];
  }
  if (largest > largest_magnitude(dtype)) {
    result.fault = RowResult::kTooLarge;
    return result;
  }
  quantize_row(dtype, values, out, cols);
  if (dtype == DType::kF32) return result;
  decode_row(dtype, out, stored, cols);
  for (size_t i = 0; i < cols; ++i) {
    const double error = static_cast<double>(stored[i]) - values[i];
    result.error_squares += error * error;
  }
  return result;
}

void check_rows(const std::vector<RowResult>& rows, int64_t first, const MappedTensor& tensor, DType dtype) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].fault == RowResult::kFine) continue;
    const std::string where = fmt::format("{}, row {}", tensor.rule.name, first + static_cast<int64_t>(i));
    if (rows[i].fault == RowResult::kNotFinite) {
      fail({ErrorCode::kFormat, "a weight is not a finite number", where, "", "",
            "The checkpoint is damaged; fetch it again"});
    }
    fail({ErrorCode::kFormat, fmt::format("a weight is too large for {}", name_of(dtype)), where,
          fmt::format("at most {:g}", largest_magnitude(dtype)), "", "Use --quant bf16 or f32"});
  }
}

constexpr int64_t kBlockWeights = 32;
constexpr size_t kPackedBytes = 16,
                 kBlockBytes = 17;  // of 32 weights: in the checkpoint without, here with their scale

}  // namespace

void stream_plain(const MappedTensor& tensor, DType dtype, const SafetensorsFolder& source, RdrrWriter& writer,
                  ThreadPool& pool, ClassReport& report, const OnWeights& on_weights) {
  Tensor from;
  if (!to_tensor(*tensor.plain, from)) fail({ErrorCode::kInternal, "not a weight", tensor.rule.name, "", "", ""});
  const int64_t rows = from.rows(), cols = from.cols();
  const size_t stride = row_bytes(dtype, static_cast<size_t>(cols));
  const int64_t piece = std::clamp<int64_t>(kPieceWeights / cols, 1, rows);
  std::vector<std::byte> bytes(static_cast<size_t>(piece) * stride);
  std::vector<float> scratch(static_cast<size_t>(pool.size()) * 2 * static_cast<size_t>(cols));
  std::vector<RowResult> results;
  writer.begin(entry_for(tensor, dtype));
  for (int64_t first = 0; first < rows; first += piece) {
    const int64_t count = std::min(piece, rows - first);
    results.assign(static_cast<size_t>(count), {});
    pool.run([&](int index, int threads) {
      float* values = scratch.data() + static_cast<size_t>(index) * 2 * static_cast<size_t>(cols);
      const Range range = share(count, index, threads);
      for (long r = range.begin; r < range.end; ++r) {
        results[static_cast<size_t>(r)] =
            store_row(from, first + r, dtype, bytes.data() + static_cast<size_t>(r) * stride, values, values + cols);
      }
    });
    check_rows(results, first, tensor, dtype);
    for (const RowResult& result : results) {  // in order, so that the sums do not depend on the threads
      report.error_squares += result.error_squares;
      report.source_squares += result.source_squares;
    }
    writer.write(std::span(bytes).first(static_cast<size_t>(count) * stride));
    source.release(*tensor.plain, from.bytes.subspan(static_cast<size_t>(first) * from.stride(),
                                                     static_cast<size_t>(count) * from.stride()));
    on_weights(static_cast<uint64_t>(count * cols));
  }
  writer.end();
  ++report.tensors;
  report.weights += static_cast<uint64_t>(rows * cols);
  report.bytes += static_cast<uint64_t>(rows) * stride;
}

void stream_mxfp4(const MappedTensor& tensor, const SafetensorsFolder& source, RdrrWriter& writer, ThreadPool& pool,
                  ClassReport& report, const OnWeights& on_weights) {
  const auto blocks = static_cast<int64_t>(tensor.scales->bytes.size());
  const int64_t piece = kPieceWeights / kBlockWeights;
  std::vector<std::byte> bytes(static_cast<size_t>(std::min(piece, blocks)) * kBlockBytes);
  writer.begin(entry_for(tensor, DType::kMXFP4));
  for (int64_t first = 0; first < blocks; first += piece) {
    const auto count = static_cast<size_t>(std::min(piece, blocks - first));
    const auto packed = tensor.blocks->bytes.subspan(static_cast<size_t>(first) * kPackedBytes, count * kPackedBytes);
    const auto scales = tensor.scales->bytes.subspan(static_cast<size_t>(first), count);
    std::atomic<bool> finite = true;
    pool.run([&](int index, int threads) {
      const Range range = share(static_cast<long>(count), index, threads);
      const auto begin = static_cast<size_t>(range.begin), end = static_cast<size_t>(range.end);
      if (!repack_mxfp4_hf(packed.data() + begin * kPackedBytes, scales.data() + begin,
                           bytes.data() + begin * kBlockBytes, end - begin)) {
        finite = false;
      }
    });
    if (!finite) {
      fail({ErrorCode::kFormat, "a weight is not a finite number", tensor.rule.scales, "", "",
            "The checkpoint is damaged; fetch it again"});
    }
    writer.write(std::span(bytes).first(count * kBlockBytes));
    source.release(*tensor.blocks, packed);
    source.release(*tensor.scales, scales);
    on_weights(count * static_cast<uint64_t>(kBlockWeights));
  }
  writer.end();
  ++report.tensors;
  report.weights += static_cast<uint64_t>(blocks * kBlockWeights);
  report.bytes += static_cast<uint64_t>(blocks) * kBlockBytes;
}

}  // namespace doppler
