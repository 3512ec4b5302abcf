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
  uint64_t offset = 0;  // of the first row in the buffer, in bytes

  BoundBuffer bound(size_t stride) const { return {buffer, offset, static_cast<uint64_t>(rows) * stride}; }
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

// Matrices of one type and width in one buffer, row after row, so that one dispatch can go through all of them: `all`
// is the whole, `each` are views of its parts.
struct JoinedWeight {
  Weight all;
  std::vector<Weight> each;
};

// Same type and width, few enough bytes for one binding, and every part starting where a binding may.
bool can_join(const Capabilities& capabilities, std::span<const Tensor* const> tensors);
JoinedWeight upload_joined(Device& device, std::span<const Tensor* const> tensors);

// Norm weights, biases, sinks: any type, all elements, as f32.
Buffer upload_vector(Device& device, const Tensor& tensor);

}  // namespace doppler::gpu
