#include "convert/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/error.h"
#include "convert/quantize.h"
#include "format/decode.h"

namespace doppler {
namespace {

// Weights of one piece: enough rows to keep every thread busy, 16 MiB at most as f32.
constexpr int64_t kPieceWeights = 4 << 20;

constexpr int64_t kBlockWeights = 32;                  // of MXFP4 …
constexpr size_t kPackedBytes = 16, kBlockBytes = 17;  // … in the checkpoint without, here with their scale

RdrrTensorEntry entry_for(const MappedTensor& tensor, DType dtype) {
  return {tensor.rule.stored, tensor.slot, dtype, tensor.shape, tensor.rule.role, {}, 0};
}

[[noreturn]] void refuse_row(RowOutcome::Fault fault, DType dtype, const std::string& where) {
  if (fault == RowOutcome::kNotFinite) {
    fail({.code = ErrorCode::kFormat,
          .what = "a weight is not a finite number",
          .where = where,
          .todo = "The source is damaged; fetch it again"});
  }
  fail({.code = ErrorCode::kFormat,
        .what = fmt::format("a weight is too large for {}", name_of(dtype)),
        .where = where,
        .expected = fmt::format("at most {:g}", largest_magnitude(dtype)),
        .todo = "Use --quant bf16 or f32"});
}

}  // namespace

RowOutcome store_values(const float* values, size_t cols, DType dtype, std::byte* out, float* stored) {
  if (!all_finite(values, cols)) return {.fault = RowOutcome::kNotFinite};
  RowOutcome outcome;
  float largest = 0;
  for (size_t i = 0; i < cols; ++i) {
    largest = std::max(largest, std::abs(values[i]));
    outcome.source_squares += static_cast<double>(values[i]) * values[i];
  }
  if (largest > largest_magnitude(dtype)) return {.fault = RowOutcome::kTooLarge};
  quantize_row(dtype, values, out, cols);
  if (dtype == DType::kF32) return outcome;
  decode_row(dtype, out, stored, cols);
  for (size_t i = 0; i < cols; ++i) {
    const double error = static_cast<double>(stored[i]) - values[i];
    outcome.error_squares += error * error;
  }
  return outcome;
}

void stream_rows(const RowStream& stream, ThreadPool& pool, ClassReport& report) {
  const auto cols = static_cast<size_t>(stream.cols);
  const size_t stride = row_bytes(stream.dtype, cols);
  const int64_t piece = std::clamp<int64_t>(kPieceWeights / stream.cols, 1, stream.rows);
  std::vector<std::byte> bytes(static_cast<size_t>(piece) * stride);
  std::vector<float> scratch(static_cast<size_t>(pool.size()) * 2 * cols);
  std::vector<RowOutcome> outcomes;
  for (int64_t first = 0; first < stream.rows; first += piece) {
    const int64_t count = std::min(piece, stream.rows - first);
    outcomes.assign(static_cast<size_t>(count), {});
    pool.run([&](int index, int threads) {
      const Range range = split_range(count, index, threads);
      float* values = scratch.data() + static_cast<size_t>(index) * 2 * cols;
      for (long r = range.begin; r < range.end; ++r) {
        const auto i = static_cast<size_t>(r);
        outcomes[i] = stream.make(first + r, bytes.data() + i * stride, values);
      }
    });
    for (size_t i = 0; i < outcomes.size(); ++i) {  // in order, so that the sums do not depend on the threads
      if (outcomes[i].fault != RowOutcome::kNone)
        refuse_row(outcomes[i].fault, stream.dtype,
                   fmt::format("{}, row {}", stream.name, first + static_cast<int64_t>(i)));
      report.error_squares += outcomes[i].error_squares;
      report.source_squares += outcomes[i].source_squares;
    }
    stream.write(std::span(bytes).first(static_cast<size_t>(count) * stride));
    stream.on_weights(static_cast<uint64_t>(count * stream.cols));
  }
  ++report.tensors;
  report.weights += static_cast<uint64_t>(stream.rows * stream.cols);
  report.bytes += static_cast<uint64_t>(stream.rows) * stride;
}

void stream_plain(const MappedTensor& tensor, DType dtype, const CheckpointTensors& source,
                  const std::vector<LoraAdapter>& adapters, RdrrWriter& writer, ThreadPool& pool, ClassReport& report,
                  const OnWeights& on_weights) {
  const SlotRows from(tensor);
  const auto cols = static_cast<size_t>(from.cols());
  // Is the source read from front to back?
  const bool in_order = tensor.plain.size() == 1 && !tensor.is_decoded() && !tensor.rule.halves;
  size_t read = 0;  // bytes of it, if so
  RowStream stream{.name = tensor.rule.name, .rows = from.count(), .cols = from.cols(), .dtype = dtype};
  stream.make = [&](int64_t row, std::byte* out, float* values) {
    const MappedTensor::Place place = tensor.place_of(row);
    from.decode(row, values);
    for (const LoraAdapter& adapter : adapters) {
      const LoraAdapter::Delta* delta = adapter.find(tensor.plain[place.tensor].name);
      if (delta) add_lora_row(*delta, tensor.first_row + place.row, values, values + cols);
    }
    return store_values(values, cols, dtype, out, values + cols);
  };
  stream.write = [&](std::span<const std::byte> piece) {
    writer.write(piece);
    if (!in_order) return;
    const std::span<const std::byte> bytes = tensor.plain[0].bytes;
    const size_t size = piece.size() / row_bytes(dtype, cols) * (bytes.size() / static_cast<size_t>(from.count()));
    source.release(tensor.plain[0], bytes.subspan(read, size));
    read += size;
  };
  stream.on_weights = on_weights;
  writer.begin(entry_for(tensor, dtype));
  stream_rows(stream, pool, report);
  if (!in_order) {
    for (const RawTensor& part : tensor.plain) source.release(part, part.bytes);
  }
  writer.end();
}

void stream_mxfp4(const MappedTensor& tensor, const CheckpointTensors& source, RdrrWriter& writer, ThreadPool& pool,
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
      const Range range = split_range(static_cast<long>(count), index, threads);
      const auto begin = static_cast<size_t>(range.begin), end = static_cast<size_t>(range.end);
      if (!repack_mxfp4_hf(packed.data() + begin * kPackedBytes, scales.data() + begin,
                           bytes.data() + begin * kBlockBytes, end - begin)) {
        finite = false;
      }
    });
    if (!finite) {
      fail({.code = ErrorCode::kFormat,
            .what = "a weight is not a finite number",
            .where = tensor.rule.scales,
            .todo = "The checkpoint is damaged; fetch it again"});
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
