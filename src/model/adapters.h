// LoRA adapters, beside a model's weights and never merged into them: to the product with some matrices the product
// with two thin ones is added, out += scale · B (A x). So each sequence of a batch may have others, or none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace doppler {

// The two thin matrices of one slot.
struct LoraPair {
  int rank = 0, in = 0, out = 0;
  float scale = 1;       // what its makers multiply with: alpha / rank, or alpha / √rank
  std::vector<float> a;  // [rank, in]
  std::vector<float> b;  // [rank, out]: B transposed
};

struct Adapter {
  std::string name;
  float scale = 1;                        // what whoever named it multiplies with beyond that
  std::map<std::string, LoraPair> pairs;  // by the slot of a MatMul's matrix

  const LoraPair* find(const std::string& slot) const;
  uint64_t bytes() const;
};

// One adapter of a sequence, and what its products are multiplied with beside LoraPair::scale.
struct AdapterUse {
  int adapter = 0;  // number in Adapters::all
  float scale = 1;
  auto operator<=>(const AdapterUse&) const = default;
};
using AdapterUses = std::vector<AdapterUse>;

// As executors take them: in the order of their numbers, those that change nothing left out.
AdapterUses in_order(AdapterUses uses);

// An adapter by its place: a folder or a file.
struct AdapterSpec {
  std::filesystem::path path;
  float scale = 1;
};

struct Adapters {
  std::vector<Adapter> all;
  AdapterUses standard = {};  // of a sequence for which nobody says

  uint64_t bytes() const;
};

// A pair of some adapter for one slot.
struct NumberedPair {
  int adapter = 0;
  const LoraPair* pair = nullptr;
};
// Of all adapters that have one for the slot; `adapters` may be null.
std::vector<NumberedPair> pairs_of(const Adapters* adapters, const std::string& slot);

}  // namespace doppler
