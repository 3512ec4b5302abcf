#include "gpu/ops/weight.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "format/decode.h"

namespace doppler::gpu {
namespace {

constexpr size_t kUploadBytes = 4u << 20;

// Packs rows first … first + part.rows - 1 of the tensor into the part's place, a few MiB at a time.
void upload_rows(Device& device, const Tensor& tensor, int64_t first, size_t stride, const WeightPart& part) {
  if (device.measuring()) return;
  const int64_t step = std::max<int64_t>(1, static_cast<int64_t>(kUploadBytes / stride));
  std::vector<std::byte> packed(static_cast<size_t>(std::min(step, part.rows)) * stride), scratch;
  for (int64_t done = 0; done < part.rows; done += step) {
    const int64_t now = std::min(step, part.rows - done);
    const std::byte* rows = tensor.rows_at(first + done, now, scratch);
    for (int64_t r = 0; r < now; ++r) {
      pack_row(tensor.dtype, rows + static_cast<size_t>(r) * tensor.stride(),
               packed.data() + static_cast<size_t>(r) * stride, static_cast<size_t>(tensor.cols()));
    }
    device.write(part.buffer, part.offset + static_cast<uint64_t>(done) * stride,
                 std::span(packed).first(static_cast<size_t>(now) * stride));
    drop_mapped_pages({rows, static_cast<size_t>(now) * tensor.stride()});  // the GPU has them now
  }
}

uint64_t max_bytes(const Limits& limits) { return std::min(limits.max_binding_bytes, limits.max_buffer_bytes); }

int64_t rows_together(const Tensor& tensor) { return tensor.shape.size() > 2 ? tensor.shape[1] : 1; }

// Buffers for all rows, `unit` of them never parted.
void make_parts(Device& device, Weight& weight, int64_t unit, uint64_t most) {
  const int64_t part_rows = static_cast<int64_t>(most / weight.stride) / unit * unit;
  if (part_rows == 0) {
    fail({.code = ErrorCode::kUnsupported,
          .what = fmt::format("one {} of a weight is larger than this device can bind", unit > 1 ? "expert" : "row"),
          .where = weight.name,
          .expected = fmt::format("up to {} bytes", most),
          .got = fmt::format("{}", static_cast<uint64_t>(unit) * weight.stride)});
  }
  for (int64_t first = 0; first < weight.rows; first += part_rows) {
    WeightPart part;
    part.first_row = first;
    part.rows = std::min(part_rows, weight.rows - first);
    part.buffer = device.create_buffer(weight.name, static_cast<uint64_t>(part.rows) * weight.stride);
    weight.parts.push_back(std::move(part));
  }
}

}  // namespace

Weight describe_weight(const Tensor& tensor) {
  Weight weight;
  weight.name = tensor.name;
  weight.dtype = tensor.dtype;
  weight.rows = tensor.rows();
  weight.cols = tensor.cols();
  weight.stride = packed_row_bytes(tensor.dtype, static_cast<size_t>(tensor.cols()));
  return weight;
}

Weight upload_weight(Device& device, const Tensor& tensor, uint64_t max_part_bytes) {
  Weight weight = describe_weight(tensor);
  uint64_t most = max_bytes(device.capabilities().limits);
  if (max_part_bytes != 0) most = std::min(most, max_part_bytes);
  make_parts(device, weight, rows_together(tensor), most);
  for (const WeightPart& part : weight.parts) upload_rows(device, tensor, part.first_row, weight.stride, part);
  return weight;
}

Weight make_expert_pages(Device& device, const Tensor& tensor, int64_t count) {
  Weight weight = describe_weight(tensor);
  weight.rows = count * rows_together(tensor);
  make_parts(device, weight, rows_together(tensor), max_bytes(device.capabilities().limits));
  return weight;
}

void upload_expert(Device& device, const Tensor& tensor, int64_t expert, const Weight& pages, int64_t page) {
  const int64_t rows = rows_together(tensor), first = page * rows;
  for (const WeightPart& part : pages.parts) {
    if (first < part.first_row || first >= part.first_row + part.rows) continue;
    const uint64_t offset = part.offset + static_cast<uint64_t>(first - part.first_row) * pages.stride;
    upload_rows(device, tensor, expert * rows, pages.stride, {part.buffer, first, rows, offset});
  }
}

bool can_join(const Capabilities& capabilities, std::span<const Tensor* const> tensors) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor* tensor = tensors[i];
    const DType before = tensors[i == 0 ? 0 : i - 1]->dtype;
    const bool follows = tensor->dtype == before || (before == DType::kQ4_K && tensor->dtype == DType::kQ6_K);
    if (!follows || tensor->cols() != tensors[0]->cols()) return false;
    if (bytes % capabilities.limits.storage_alignment != 0) return false;
    bytes += describe_weight(*tensor).bytes();
  }
  return bytes <= max_bytes(capabilities.limits);
}

JoinedWeight upload_joined(Device& device, std::span<const Tensor* const> tensors) {
  JoinedWeight joined{describe_weight(*tensors[0]), {}};
  joined.all.rows = 0;
  for (const Tensor* tensor : tensors) {
    if (tensor->dtype != joined.all.dtype && !joined.all.second) {
      joined.all.second = Weight::Second{joined.all.rows, describe_weight(*tensor).stride, joined.all.bytes()};
    }
    joined.all.rows += tensor->rows();
    if (tensor != tensors[0]) joined.all.name += " + " + tensor->name;
  }
  const Buffer buffer = device.create_buffer(joined.all.name, joined.all.bytes());
  joined.all.parts.push_back({buffer, 0, joined.all.rows, 0});
  uint64_t offset = 0;
  for (const Tensor* tensor : tensors) {
    Weight view = describe_weight(*tensor);
    view.parts.push_back({buffer, 0, view.rows, offset});
    upload_rows(device, *tensor, 0, view.stride, view.parts[0]);
    offset += view.bytes();
    joined.each.push_back(std::move(view));
  }
  return joined;
}

std::vector<Weight> rows_by_type(const Weight& weight) {
  if (!weight.second) return {weight};
  const Weight::Second& second = *weight.second;
  Weight first = weight, last = weight;
  first.second.reset();
  first.rows = first.parts[0].rows = second.first_row;
  last.second.reset();
  last.dtype = DType::kQ6_K;
  last.rows = weight.rows - second.first_row;
  last.stride = second.stride;
  last.parts[0].rows = last.rows;
  last.parts[0].offset = second.offset;
  return {first, last};
}

Buffer upload_vector(Device& device, const Tensor& tensor) {
  const size_t cols = static_cast<size_t>(tensor.cols()), rows = static_cast<size_t>(tensor.rows());
  std::vector<float> values(rows * cols);
  std::vector<std::byte> scratch;
  const std::byte* stored = tensor.rows_at(0, tensor.rows(), scratch);
  for (size_t r = 0; r < rows; ++r) {
    decode_row(tensor.dtype, stored + r * tensor.stride(), values.data() + r * cols, cols);
  }
  Buffer buffer = device.create_buffer(tensor.name, values.size() * sizeof(float));
  write<float>(device, buffer, values);
  return buffer;
}

}  // namespace doppler::gpu
