#include "convert/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace doppler {
namespace {

// The first and the last eighth of the layers, and every third between: errors made early pass through everything,
// errors made late reach the logits undamped, and those between are spread. Half of the layers, give or take one.
bool is_sensitive(int layer, int layers) {
  const int eighth = layers / 8;
  return layer < eighth || layer >= layers - eighth || (layer - eighth) % 3 == 2;
}

}  // namespace

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all = {
      {"q4_k_m", "Q4_K_M", DType::kQ4_K, DType::kQ6_K, DType::kQ6_K, DType::kQ6_K},
      {"q4_k", "Q4_K", DType::kQ4_K, DType::kQ4_K, DType::kQ4_K, DType::kQ4_K},
      {"q6_k", "Q6_K", DType::kQ6_K, DType::kQ6_K, DType::kQ8_0, DType::kQ6_K},
      {"q8_0", "Q8_0", DType::kQ8_0, DType::kQ8_0, DType::kBF16, DType::kQ8_0},
      {"f16", "F16", DType::kF16, DType::kF16, DType::kF16, DType::kF16},
      {"bf16", "BF16", DType::kBF16, DType::kBF16, DType::kBF16, DType::kBF16},
      {"f32", "F32", DType::kF32, DType::kF32, DType::kF32, DType::kF32},
  };
  return all;
}

const Recipe& recipe_named(const std::string& name) {
  std::vector<std::string_view> known;
  for (const Recipe& recipe : recipes()) {
    if (recipe.name == name) return recipe;
    known.push_back(recipe.name);
  }
  fail({.code = ErrorCode::kUsage,
        .what = "an unknown quantisation",
        .where = "--quant",
        .expected = fmt::format("one of {}", fmt::join(known, ", ")),
        .got = name});
}

DType dtype_for(const Recipe& recipe, QuantClass quant, int layer, int layers) {
  switch (quant) {
    case QuantClass::kEmbedding: return recipe.embedding;
    case QuantClass::kMatrix:
    case QuantClass::kExpert: return recipe.matrix;
    case QuantClass::kValue: return recipe.value;
    case QuantClass::kDown: return is_sensitive(layer, layers) ? recipe.down : recipe.matrix;
    case QuantClass::kKeep: return DType::kF32;
  }
  return DType::kF32;
}

}  // namespace doppler
