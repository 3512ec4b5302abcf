// One tensor from the checkpoint into the artefact, a few megabytes at a time.
#pragma once

#include "base/threads.h"
#include "convert/artefact.h"
#include "convert/tensor_map.h"
#include "format/rdrr.h"
#include "format/safetensors.h"

namespace doppler {

// Called after every piece with the weights it held; fails to stop the conversion.
using OnWeights = std::function<void(uint64_t weights)>;

// Quantises `tensor` to `dtype` row by row on all threads of the pool and writes it. Fails, naming tensor and row, on a
// weight that is no number or does not fit the dtype. Source pages that were read are given back.
void stream_plain(const MappedTensor& tensor, DType dtype, const SafetensorsFolder& source, RdrrWriter& writer,
                  ThreadPool& pool, ClassReport& report, const OnWeights& on_weights);

// Packed MXFP4 halves become MXFP4 blocks; no weight changes.
void stream_mxfp4(const MappedTensor& tensor, const SafetensorsFolder& source, RdrrWriter& writer, ThreadPool& pool,
                  ClassReport& report, const OnWeights& on_weights);

}  // namespace doppler
