#include "gpu/weight.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "format/decode.h"

namespace doppler::gpu {
namespace {
constexpr size_t kUploadBytes = 4u << 20;
}

Weight upload_weight(Device& device, const Tensor& tensor, uint64_t most_part_bytes) {
  Weight weight;
  weight.name = tensor.name;
  weight.dtype = tensor.dtype;
  weight.rows = tensor.rows();
  weight.cols = tensor.cols();
  weight.stride = packed_row_bytes(tensor.dtype, static_cast<size_t>(tensor.cols()));

  const Limits& limits = device.capabilities().limits;
  uint64_t most = std::min(limits.max_binding_bytes, limits.max_buffer_bytes);
  if (most_part_bytes != 0) most = std::min(most, most_part_bytes);
  const int64_t part_rows = static_cast<int64_t>(most / weight.stride);
  if (part_rows == 0) {
    fail({ErrorCode::kUnsupported, "one row of a weight is larger than this device can bind", tensor.name,
          fmt::format("up to {} bytes", most), fmt::format("{}", weight.stride), ""});
  }
  const int64_t step = std::max<int64_t>(1, static_cast<int64_t>(kUploadBytes / weight.stride));
  std::vector<std::byte> packed(static_cast<size_t>(std::min(step, weight.rows)) * weight.stride);
  for (int64_t first = 0; first < weight.rows; first += part_rows) {
    WeightPart part;
    part.first_row = first;
    part.rows = std::min(part_rows, weight.rows - first);
    part.buffer = device.create_buffer(tensor.name, static_cast<uint64_t>(part.rows) * weight.stride);
    for (int64_t done = 0; done < part.rows; done += step) {
      const int64_t now = std::min(step, part.rows - done);
      for (int64_t r = 0; r < now; ++r) {
        pack_row(tensor.dtype, tensor.row(first + done + r), packed.data() + static_cast<size_t>(r) * weight.stride,
                 static_cast<size_t>(weight.cols));
      }
      device.write(part.buffer, static_cast<uint64_t>(done) * weight.stride,
                   std::span(packed).first(static_cast<size_t>(now) * weight.stride));
    }
    weight.parts.push_back(std::move(part));
  }
  return weight;
}

Buffer upload_vector(Device& device, const Tensor& tensor) {
  const size_t cols = static_cast<size_t>(tensor.cols()), rows = static_cast<size_t>(tensor.rows());
  std::vector<float> values(rows * cols);
  for (size_t r = 0; r < rows; ++r) {
    decode_row(tensor.dtype, tensor.row(static_cast<int64_t>(r)), values.data() + r * cols, cols);
  }
  Buffer buffer = device.create_buffer(tensor.name, values.size() * sizeof(float));
  write<float>(device, buffer, values);
  return buffer;
}

}  // namespace doppler::gpu
