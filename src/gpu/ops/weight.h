// A weight matrix on the GPU, split by rows where it is larger than one binding may be.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "format/tensor.h"
#include "gpu/ops/weight_layout.h"
#include "gpu/webgpu/device.h"

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

  // Rows of Q6_K behind the first ones, which are of Q4_K, in the same buffer. `rows` counts them too.
  struct Second {
    int64_t first_row = 0;
    size_t stride = 0;
    uint64_t offset = 0;  // of its first row in the buffer, in bytes
  };
  std::optional<Second> second;

  uint64_t bytes() const {
    return second ? second->offset + static_cast<uint64_t>(rows - second->first_row) * second->stride
                  : static_cast<uint64_t>(rows) * stride;
  }
};

// Packs and uploads a few MiB at a time; the tensor may be a mapped file. `max_part_bytes` lowers the device's limit,
// for tests (0: the device's own). Parts of [experts, rows, cols] hold whole experts.
Weight upload_weight(Device& device, const Tensor& tensor, uint64_t max_part_bytes = 0);

// The measures of a weight that lies nowhere yet.
Weight describe_weight(const Tensor& tensor);
// Room for `count` experts of [experts, rows, cols], a page each, and one expert put into a page of it.
Weight make_expert_pages(Device& device, const Tensor& tensor, int64_t count);
void upload_expert(Device& device, const Tensor& tensor, int64_t expert, const Weight& pages, int64_t page);

// Matrices of one width in one buffer, row after row, so that one dispatch can go through all of them: `all` is the
// whole, `each` are views of its parts.
struct JoinedWeight {
  Weight all;
  std::vector<Weight> each;
};

// Same width, few enough bytes for one binding, and every part starting where a binding may. Same type; or some of
// Q4_K, then some of Q6_K, which are then Weight::second.
bool can_join(const Capabilities& capabilities, std::span<const Tensor* const> tensors);
JoinedWeight upload_joined(Device& device, std::span<const Tensor* const> tensors);

// Its rows by type: itself, or the first ones and Weight::second as weights of their own, which a kernel that knows but
// one type reads faster.
std::vector<Weight> rows_by_type(const Weight& weight);

// Norm weights, biases, sinks: any type, all elements, as f32.
Buffer upload_vector(Device& device, const Tensor& tensor);

}  // namespace doppler::gpu
