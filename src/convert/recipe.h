// What `--quant` means: the dtype of each class of tensor.
#pragma once

#include <string_view>
#include <vector>

#include "format/dtype.h"
#include "import/family.h"

namespace doppler {

struct Recipe {
  std::string_view name;       // "q4_k_m", as on the command line
  std::string_view published;  // "Q4_K_M", as in the manifest
  DType matrix;                // most matrices
  DType embedding;             // the embedding and the output matrix
  DType value;                 // value projections: small, and their error reaches the output without a softmax between
  DType down;                  // down projections of the layers where an error is carried furthest (about half of them)
};

const std::vector<Recipe>& recipes();
const Recipe& recipe_named(const std::string& name);  // fails naming those there are

// The dtype of a tensor of this class in layer `layer` of `layers`. kKeep is F32: norms, biases, sinks and routers are
// small, and a quantised router sends every token to one expert.
DType dtype_for(const Recipe& recipe, QuantClass quant, int layer, int layers);

}  // namespace doppler
