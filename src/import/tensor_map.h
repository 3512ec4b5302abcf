// Which tensor of a checkpoint fills which slot of the model's plan.
#pragma once

#include <string>
#include <vector>

#include "format/safetensors.h"
#include "import/family.h"
#include "model/plan.h"

namespace doppler {

struct MappedTensor {
  std::string slot;
  TensorRule rule;
  std::vector<int64_t> shape;  // as the plan needs it
  // F32, F16 or BF16 …: the slot's rows, or a tensor for each expert, or for each expert two whose rows alternate;
  // views of a part of a tensor where slots are stacked in one.
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
};

struct TensorMap {
  std::vector<MappedTensor> tensors;  // in the plan's order
  std::vector<std::string> notes;     // what was left out, and why
};

// The slots a plan uses with their shapes, each once, in the order of first use.
std::vector<WeightUse> weights_of(const Plan& plan);

// Sets config.vocab from the embedding's shape, then holds config and checkpoint against each other: every slot of the
// plan has its tensor in the right shape, and every tensor is used or listed by the family as ignorable. Fails naming
// all that disagree.
TensorMap map_tensors(const Family& family, ModelConfig& config, const SafetensorsFolder& source,
                      const std::string& where);

}  // namespace doppler
