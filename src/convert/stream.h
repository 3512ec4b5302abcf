// Rows of one tensor, made on all threads and handed on in order, a few megabytes at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "base/error.h"
#include "base/threads.h"
#include "convert/artefact.h"
#include "format/rdrr.h"
#include "import/lora.h"
#include "import/tensor_map.h"

namespace doppler {

// What storing a row came to: the squares of the source's weights and of what was lost.
struct RowOutcome {
  double error_squares = 0, source_squares = 0;
  enum Fault : uint8_t { kNone, kNotFinite, kTooLarge } fault = kNone;
};

// values[cols] → out in `dtype`; `stored` has room for what it decodes to.
RowOutcome store_values(const float* values, size_t cols, DType dtype, std::byte* out, float* stored);

struct RowStream {
  std::string name;  // for messages
  int64_t rows = 0, cols = 0;
  DType dtype = DType::kF32;
  // Makes row `row` at `out`; `scratch` has room for two rows of floats.
  std::function<RowOutcome(int64_t row, std::byte* out, float* scratch)> make = {};
  std::function<void(std::span<const std::byte>)> write = {};
  std::function<void(uint64_t weights)> on_weights = {};  // after every piece; fails to stop
};

// Fails, naming tensor and row, on a row with a fault. The sums of `report` do not depend on the number of threads.
void stream_rows(const RowStream& stream, ThreadPool& pool, ClassReport& report);

// Called after every piece with the weights it held; fails to stop the conversion.
using OnWeights = std::function<void(uint64_t weights)>;

// Counts to `done`, tells options.progress, and fails where options.cancelled asks for it. All must outlive it.
template <class Options>
OnWeights on_weights_of(const Options& options, uint64_t& done, uint64_t all, const std::filesystem::path& target) {
  return [&options, &done, all, &target](uint64_t weights) {
    done += weights;
    if (options.progress) options.progress(done, all);
    if (options.cancelled && options.cancelled()) {
      fail({.code = ErrorCode::kFile,
            .what = "the conversion was interrupted; nothing is left of it",
            .where = target.string()});
    }
  };
}

// Quantises `tensor` to `dtype` row by row on all threads of the pool and writes it. Fails, naming tensor and row, on a
// weight that is no number or does not fit the dtype. Source pages that were read are given back. `adapters` are added
// to the rows before.
void stream_plain(const MappedTensor& tensor, DType dtype, const CheckpointTensors& source,
                  const std::vector<LoraAdapter>& adapters, RdrrWriter& writer, ThreadPool& pool, ClassReport& report,
                  const OnWeights& on_weights);

// Packed MXFP4 halves become MXFP4 blocks; no weight changes.
void stream_mxfp4(const MappedTensor& tensor, const CheckpointTensors& source, RdrrWriter& writer, ThreadPool& pool,
                  ClassReport& report, const OnWeights& on_weights);

}  // namespace doppler
