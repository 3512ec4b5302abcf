#include "cpu/packed_weights.h"

#include <algorithm>
#include <atomic>

#include "base/files.h"

namespace doppler::cpu {
namespace {

int strips_of(const Linear& matrix) { return (matrix.rows + kStripRows - 1) / kStripRows; }

// A tensor of experts is as many matrices.
int matrices_in(const Tensor& tensor) { return tensor.shape.size() == 3 ? static_cast<int>(tensor.shape[0]) : 1; }

size_t bytes_of(const Linear& matrix, int count) {
  if (!matrix.format || !matrix.format->packing) return 0;
  return static_cast<size_t>(count) * static_cast<size_t>(strips_of(matrix)) *
         matrix.format->packing->strip_bytes(matrix.cols);
}

// Strips that a thread packs at once: a megabyte or two.
constexpr int kStripsAtOnce = 128;

}  // namespace

std::vector<const Tensor*> matrices_of(const Plan& plan, const Weights& weights) {
  std::vector<const Tensor*> all;
  for (const Step& step : plan.steps) {
    if (!std::holds_alternative<MatMul>(step.op) && !std::holds_alternative<ExpertMatMul>(step.op)) continue;
    const Tensor* tensor = &weights.at(step.weights[0].slot);
    if (std::find(all.begin(), all.end(), tensor) == all.end()) all.push_back(tensor);
  }
  return all;
}

size_t packed_bytes(const Kernels& kernels, std::span<const Tensor* const> matrices) {
  size_t bytes = 0;
  for (const Tensor* t : matrices) bytes += bytes_of(make_linear(kernels, *t), matrices_in(*t));
  return bytes;
}

PackedWeights::PackedWeights(const Kernels& kernels, std::span<const Tensor* const> matrices, ThreadPool& pool) {
  const size_t bytes = packed_bytes(kernels, matrices);
  if (bytes == 0) return;
  memory_ = Memory::large(bytes, "the weights");
  size_t offset = 0;
  for (const Tensor* tensor : matrices) {
    const Linear whole = make_linear(kernels, *tensor);
    const int count = matrices_in(*tensor);
    const size_t size = bytes_of(whole, count);
    if (size == 0) continue;
    const Packing& packing = *whole.format->packing;
    const size_t strip_bytes = packing.strip_bytes(whole.cols);
    const int each = strips_of(whole), strips = each * count;
    std::byte* to = memory_.data() + offset;
    std::atomic<int> next{0};
    pool.run([&](int, int) {
      for (int first; (first = next.fetch_add(kStripsAtOnce)) < strips;) {
        const int last = std::min(strips, first + kStripsAtOnce);
        const auto row_of = [&](int s) { return s / each * whole.rows + std::min(s % each * kStripRows, whole.rows); };
        const auto place = [&](int row) { return whole.data + static_cast<size_t>(row) * whole.stride; };
        for (int s = first; s < last; ++s) {
          const int rows = std::min(kStripRows, whole.rows - s % each * kStripRows);
          packing.pack(place(row_of(s)), whole.stride, rows, whole.cols, to + static_cast<size_t>(s) * strip_bytes);
        }
        drop_mapped_pages({place(row_of(first)), place(row_of(last))});
      }
    });
    drop_mapped_pages(tensor->bytes);
    offsets_[whole.data] = offset;
    offset += size;
  }
}

Linear PackedWeights::linear(const Kernels& kernels, const Tensor& tensor) const {
  Linear m = make_linear(kernels, tensor);
  const auto found = offsets_.find(m.data);
  if (found == offsets_.end()) return m;
  m.data = memory_.data() + found->second;
  m.stride = m.format->packing->strip_bytes(m.cols);
  m.packed = true;
  return m;
}

}  // namespace doppler::cpu
