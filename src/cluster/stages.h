// Stages of a plan: neighbouring layers that one rank runs. The first stage begins with the embedding, the last ends
// with the logits, and between two of them goes one value, [tokens, hidden].
#pragma once

#include <cstdint>
#include <vector>

#include "model/plan.h"
#include "model/weights.h"

namespace doppler {

// The layers before which a plan can be cut: one value alone crosses, and no layer behind reads a cache of one before.
// Without 0, which is no cut.
std::vector<int> possible_cuts(const Plan& plan);

// Steps of the layers [begin, end), with what comes before the first layer and behind the last. The values keep their
// numbers. Both borders are possible cuts, or the plan's ends.
Plan slice(const Plan& plan, int begin, int end);
int layer_count(const Plan& plan);

// The weights that a plan uses: no other bytes are read by who runs it.
Weights weights_of(const Plan& plan, const Weights& weights);
// Their bytes.
uint64_t weight_bytes(const Plan& plan, const Weights& weights);

struct RankPower {
  double speed = 1;              // bytes a second of weights and keys, or any other number in proportion
  uint64_t memory = UINT64_MAX;  // bytes
};
// What a layer takes, with the embedding or the output where it is the first or the last.
struct LayerNeed {
  double cost = 0;      // bytes that a token reads
  uint64_t memory = 0;  // bytes of weights and of the cache
};
// The first layer of each rank's stage, then the number of layers: the borders for which the slowest stage is fastest
// and every rank's memory suffices. Fails where there are more ranks than parts, or too little memory.
std::vector<int> divide(const std::vector<LayerNeed>& layers, const std::vector<int>& cuts,
                        const std::vector<RankPower>& ranks);

}  // namespace doppler
