// Which steps of a plan become one dispatch (or one short run of dispatches) when a single token is decoded. A short
// table of patterns; what no pattern takes stands alone. Pure: tested without a GPU.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "model/lifetimes.h"
#include "model/plan.h"

namespace doppler::gpu {

enum class Fusion : uint8_t {
  kSingle,       // one step as it is
  kProjectNorm,  // [branch norm] [residual add] norm, matmul… of that norm [gated activation | soft-cap]
  kAttention,    // [q norm, k norm] q rope, k rope, attention. Leaves the attention as partial results of splits
  kMerge,        // the matmul after it, which puts the partial results together
  kExpertsUp,    // route, experts' gate and up of the norm before the router (which is made anew), activation
  kExpertsDown,  // experts' down, combine
};

struct FusedGroup {
  Fusion fusion = Fusion::kSingle;
  std::vector<int> steps;  // indices into Plan::steps, in order
  // kProjectNorm (and `norm` of kExpertsUp), indices into Plan::steps; -1 where the pattern has none
  int branch_norm = -1, add = -1, norm = -1, glu = -1, softcap = -1;
  std::vector<int> matmuls = {};
};

// Steps in `alone` stay single.
std::vector<FusedGroup> fuse_for_decode(const Plan& plan, const std::set<std::string>& alone = {});
StepGroups steps_of(const std::vector<FusedGroup>& groups);

}  // namespace doppler::gpu
