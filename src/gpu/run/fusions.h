// Which steps of a plan become one dispatch (or one short run of dispatches) when a single token is decoded. A short
// table of patterns; what no pattern takes stands alone. Pure: tested without a GPU.
#pragma once

#include <functional>
#include <vector>

#include "model/lifetimes.h"
#include "model/plan.h"

namespace doppler::gpu {

enum class Fusion : uint8_t {
  kSingle,       // one step as it is
  kProjectNorm,  // [branch norm] [residual add] norm, matmul… of that norm [gated activation | [scale] [soft-cap]]
  kAttention,    // [q norm, k norm] q rope, k rope, attention. Leaves the attention as partial results of splits
  kMerge,        // the matmul after it, which puts the partial results together
  kExpertsUp,    // route, experts' gate and up of the norm before the router (which is made anew), activation
  kExpertsDown,  // experts' down, combine
};

struct FusedGroup {
  Fusion fusion = Fusion::kSingle;
  std::vector<int> steps;  // indices into Plan::steps, in order
  // kProjectNorm (and `norm` of kExpertsUp), indices into Plan::steps; -1 where the pattern has none
  int branch_norm = -1, add = -1, norm = -1, glu = -1, scale = -1, softcap = -1;
  std::vector<int> matmuls = {};
};

std::vector<FusedGroup> fuse_for_decode(const Plan& plan);
StepGroups steps_of(const std::vector<FusedGroup>& groups);

// Where a tap finds the output of a step while the fusions stay as they are.
struct TapSource {
  enum class Kind : uint8_t {
    kValue,       // a dispatch stores it (or what it is the norm of) as a value
    kQkv,         // side by side with others in the joint output of a layer's q, k and v
    kSplits,      // the splits of a layer's attention, merged for the tap
    kRecomputed,  // the matrices of a group multiplied once more, without the epilogue they have there
  };
  int step = -1;  // index into Plan::steps
  Kind kind = Kind::kValue;
  int of = -1;               // a value, a layer (kQkv, kSplits) or a group
  int from = 0;              // f32 of the source before it
  int norm = -1, rope = -1;  // steps to be applied to what is there; -1: none
};
struct TapPlan {
  std::vector<TapSource> sources;  // of the wanted steps, in order
  std::vector<int> recomputed;  // steps to be run once more by themselves, in order, for values that no fusion stores
};
TapPlan plan_taps(const Plan& plan, const std::vector<FusedGroup>& groups,
                  const std::function<bool(const Step&)>& wanted);

}  // namespace doppler::gpu
