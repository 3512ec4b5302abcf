// The matrices of a plan in strips (see Packing), for the instruction sets that read them so. They take about as much
// memory as the weights themselves, in large pages; the pages of the mapped file are given back as they are read.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "base/threads.h"
#include "cpu/linear.h"
#include "cpu/memory.h"
#include "model/plan.h"
#include "model/weights.h"

namespace doppler::cpu {

// The matrices that a plan multiplies with, each once.
std::vector<const Tensor*> matrices_of(const Plan& plan, const Weights& weights);

// Bytes that packing them takes; 0 where the kernels read weights as they come.
size_t packed_bytes(const Kernels& kernels, std::span<const Tensor* const> matrices);

class PackedWeights {
 public:
  PackedWeights() = default;
  PackedWeights(const Kernels& kernels, std::span<const Tensor* const> matrices, ThreadPool& pool);

  // The matrix to multiply with: packed if it was, otherwise where it lies.
  Linear linear(const Kernels& kernels, const Tensor& tensor) const;

 private:
  Memory memory_;
  std::map<const std::byte*, size_t> offsets_;  // by the tensor's own bytes
};

}  // namespace doppler::cpu
