#include "model/adapters.h"

#include <algorithm>

namespace doppler {

const LoraPair* Adapter::find(const std::string& slot) const {
  const auto found = pairs.find(slot);
  return found == pairs.end() ? nullptr : &found->second;
}

uint64_t Adapter::bytes() const {
  uint64_t floats = 0;
  for (const auto& [slot, pair] : pairs) floats += pair.a.size() + pair.b.size();
  return floats * sizeof(float);
}

uint64_t Adapters::bytes() const {
  uint64_t bytes = 0;
  for (const Adapter& adapter : all) bytes += adapter.bytes();
  return bytes;
}

AdapterUses in_order(AdapterUses uses) {
  std::erase_if(uses, [](const AdapterUse& use) { return use.scale == 0; });
  std::sort(uses.begin(), uses.end(), [](const AdapterUse& a, const AdapterUse& b) { return a.adapter < b.adapter; });
  return uses;
}

std::vector<NumberedPair> pairs_of(const Adapters* adapters, const std::string& slot) {
  std::vector<NumberedPair> pairs;
  for (size_t i = 0; adapters && i < adapters->all.size(); ++i) {
    if (const LoraPair* pair = adapters->all[i].find(slot)) pairs.push_back({static_cast<int>(i), pair});
  }
  return pairs;
}

}  // namespace doppler
