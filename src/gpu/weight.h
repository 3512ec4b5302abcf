// A weight matrix on the GPU, split by rows where it is larger than one binding may be.
#pragma once

#include <string>
#include <vector>

#include "format/tensor.h"
#include "gpu/device.h"
#include "gpu/weight_layout.h"

namespace doppler::gpu {

struct WeightPart {
  Buffer buffer;  // packed rows, see weight_layout.h
  int64_t first_row = 0, rows = 0;
};

struct Weight {
  std::string name;
  DType dtype = DType::kF32;
  int64_t rows = 0, cols = 0;
  size_t stride = 0;  // bytes from row to row
  std::vector<WeightPart> parts;

  uint64_t bytes() const { return static_cast<uint64_t>(rows) * stride; }
};

// Packs and uploads a few MiB at a time; the tensor may be a mapped file. `most_part_bytes` lowers the device's limit,
// for tests (0: the device's own).
Weight upload_weight(Device& device, const Tensor& tensor, uint64_t most_part_bytes = 0);

// Norm weights, biases, sinks: any type, all elements, as f32.
Buffer upload_vector(Device& device, const Tensor& tensor);

}  // namespace doppler::gpu
