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

std::vector<FusedGroup> fuse_for_decode(const Plan& plan);
StepGroups steps_of(const std::vector<FusedGroup>& groups);

// Where the output of a step can be seen without taking the fusions apart.
struct Sight {
  enum class Source : uint8_t {
    kValue,   // a dispatch stores it (or what it is the norm of) as a value
    kQkv,     // side by side with others in the joint output of a layer's q, k and v
    kSplits,  // the splits of a layer's attention, put together beside the run
    kBeside,  // the matrices of a group multiplied once more beside the run, without what follows them there
  };
  int step = -1;  // index into Plan::steps
  Source source = Source::kValue;
  int of = -1;               // a value, a layer (kQkv, kSplits) or a group
  int from = 0;              // f32 of the source before it
  int norm = -1, rope = -1;  // steps to be applied to what is there; -1: none
};
struct Sights {
  std::vector<Sight> all;  // of the wanted steps, in order
  std::vector<int> alone;  // steps to be run by themselves beside the run, in order, for values that sights are of
};
Sights look_into(const Plan& plan, const std::vector<FusedGroup>& groups,
                 const std::function<bool(const Step&)>& wanted);

}  // namespace doppler::gpu
