// Adapters of random numbers for any plan.
#pragma once

#include <cmath>

#include "cpu/test_random.h"
#include "model/adapters.h"
#include "model/plan.h"

namespace doppler::testing {

// For every matrix that is multiplied with, or for a part of them; strong enough that no logit stays what it was.
inline Adapter random_adapter(const Plan& plan, int rank, uint64_t seed, bool all = true) {
  Random random(seed);
  Adapter adapter{.name = "random" + std::to_string(seed), .scale = 1, .pairs = {}};
  for (const Step& step : plan.steps) {
    if (!std::holds_alternative<MatMul>(step.op) || (!all && random.below(2) == 0)) continue;
    const std::vector<int64_t>& shape = step.weights[0].shape;
    LoraPair pair{.rank = rank,
                  .in = static_cast<int>(shape[1]),
                  .out = static_cast<int>(shape[0]),
                  .scale = 0.5f,
                  .a = random.bells(static_cast<size_t>(rank * shape[1]), 1 / std::sqrt(static_cast<float>(shape[1]))),
                  .b = random.bells(static_cast<size_t>(rank * shape[0]), 1 / std::sqrt(static_cast<float>(rank)))};
    adapter.pairs.emplace(step.weights[0].slot, std::move(pair));
  }
  return adapter;
}

// Of ranks below, at and above what kernels take at once; the second leaves some matrices alone.
inline std::shared_ptr<const Adapters> three_random_adapters(const Plan& plan) {
  auto adapters = std::make_shared<Adapters>();
  adapters->all = {random_adapter(plan, 3, 11), random_adapter(plan, 16, 12, false), random_adapter(plan, 21, 13)};
  return adapters;
}

// What sequences may have of three.
inline std::vector<AdapterUses> choices_of_three() {
  return {{}, {{0, 1}}, {{1, 1}}, {{2, 1}}, {{0, 0.5f}}, {{0, 0.25f}, {2, 1}}};
}

}  // namespace doppler::testing
