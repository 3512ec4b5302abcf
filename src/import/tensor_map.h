// Which tensor of a checkpoint fills which slot of the model's plan.
#pragma once

#include <string>
#include <vector>

#include "import/checkpoint_tensors.h"
#include "import/family.h"
#include "model/plan.h"

namespace doppler {

struct MappedTensor {
  std::string slot;
  TensorRule rule;
  std::vector<int64_t> shape;  // as the plan needs it
  // F32, F16, BF16 or decoded row by row …: the slot's rows, or a tensor for each expert, or for each expert two whose
  // rows alternate; views of a part of a tensor where slots are stacked in one.
  std::vector<RawTensor> plain = {};
  int64_t first_row = 0;              // of the tensor that holds it, where slots are stacked
  const RawTensor* blocks = nullptr;  // … or MXFP4 in two halves
  const RawTensor* scales = nullptr;

  // Where row `row` of the slot lies among `plain`.
  struct Place {
    size_t tensor;
    int64_t row;
  };
  Place place_of(int64_t row) const;

  // Some of it is stored quantised.
  bool is_decoded() const;
};

// The rows of a slot that has plain or decoded tensors, as numbers.
class SlotRows {
 public:
  explicit SlotRows(const MappedTensor& mapped);
  int64_t count() const { return count_; }
  int64_t cols() const { return parts_.front().cols(); }
  void decode(int64_t row, float* out) const;

 private:
  const MappedTensor& mapped_;
  std::vector<Tensor> parts_;  // without bytes where rows are decoded
  int64_t count_ = 0;
};

struct TensorMap {
  std::vector<MappedTensor> tensors;  // in the plan's order
  std::vector<std::string> notes;     // what was left out, and why
};

// The slots a plan uses with their shapes, each once, in the order of first use; those of Plan::dense last.
std::vector<WeightUse> weights_of(const Plan& plan);

// Sets config.vocab from the embedding's shape, then holds config and checkpoint against each other: every slot of the
// plan has its tensor in the right shape, and every tensor is used or listed by the family as ignorable. Fails naming
// all that disagree.
TensorMap map_tensors(const Family& family, ModelConfig& config, const CheckpointTensors& source,
                      const std::string& where);

std::string shape_text(const std::vector<int64_t>& shape);

// Fails naming what a config, or metadata, and the tensors disagree in; returns where that is nothing.
void check_faults(std::vector<std::string> faults, const std::string& what, const std::string& where,
                  const std::string& todo);

}  // namespace doppler
