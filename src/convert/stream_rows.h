// Rows of one tensor, made on all threads and handed on in order, a few megabytes at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/threads.h"
#include "convert/artefact.h"
#include "convert/quantize.h"
#include "format/decode.h"

namespace doppler {

// What making a row came to: the squares of the source's weights and of what was lost; false where a weight is no
// number.
struct RowOutcome {
  double error_squares = 0, source_squares = 0;
  bool fine = true;
};

// values[cols] → out in `dtype`; `stored` has room for what it decodes to.
inline RowOutcome store_values(const float* values, size_t cols, DType dtype, std::byte* out, float* stored) {
  RowOutcome outcome;
  outcome.fine = all_finite(values, cols);
  if (!outcome.fine) return outcome;
  quantize_row(dtype, values, out, cols);
  decode_row(dtype, out, stored, cols);
  for (size_t i = 0; i < cols; ++i) {
    const double error = static_cast<double>(stored[i]) - values[i];
    outcome.source_squares += static_cast<double>(values[i]) * values[i];
    outcome.error_squares += error * error;
  }
  return outcome;
}

struct RowStream {
  std::string name;  // for messages
  int64_t rows = 0, cols = 0;
  DType dtype = DType::kF32;
  // Makes row `row` at `out`; `scratch` has room for two rows of floats.
  std::function<RowOutcome(int64_t row, std::byte* out, float* scratch)> make;
  std::function<void(std::span<const std::byte>)> write;
  std::function<void(uint64_t weights)> on_weights;  // after every piece; fails to stop
};

inline void stream_rows(const RowStream& stream, ThreadPool& pool, ClassReport& report) {
  constexpr int64_t kPieceWeights = 4 << 20;
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
      const Range range = share(count, index, threads);
      float* values = scratch.data() + static_cast<size_t>(index) * 2 * cols;
      for (long r = range.begin; r < range.end; ++r) {
        const auto i = static_cast<size_t>(r);
        outcomes[i] = stream.make(first + r, bytes.data() + i * stride, values);
      }
    });
    for (size_t i = 0; i < outcomes.size(); ++i) {  // in order, so that the sums do not depend on the threads
      if (!outcomes[i].fine) {
        fail({ErrorCode::kFormat, "a weight is not a finite number",
              stream.name + ", row " + std::to_string(first + static_cast<int64_t>(i)), "", "",
              "The file is damaged; fetch it again"});
      }
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

}  // namespace doppler
