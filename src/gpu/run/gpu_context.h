// What every program of one loaded model shares: the device, the weights, the caches and the small state.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "gpu/ops/lora.h"
#include "gpu/ops/weight.h"
#include "gpu/run/fusions.h"
#include "gpu/run/kv_pool.h"
#include "model/weights.h"

namespace doppler::gpu {

// A model's weights on the GPU. Matrices that read the same norm are joined where they can be, so that one dispatch
// goes through all of them; every slot can also be reached by itself.

// Consecutive matrices of a group in one weight.
struct WeightRun {
  Weight weight;
  uint32_t first_row = 0;  // in the group's joint output
};

// What the group of a kProjectNorm fusion needs beyond its runs.
struct GroupWeights {
  std::vector<WeightRun> runs;
  Buffer norms;  // the norm's weights, then the branch norm's, if it has one
  Buffer bias;   // of all rows, or none
  uint32_t rows = 0;
};

class GpuWeights {
 public:
  // experts_later: matrices of experts are described only, until set_matrix() says where they lie.
  GpuWeights(Device& device, const ModelConfig& config, const Plan& plan, const std::vector<FusedGroup>& groups,
             const Weights& weights, bool experts_later);

  const Weight& matrix(const std::string& slot) const { return matrices_.at(slot); }
  void set_matrix(const std::string& slot, Weight weight) { matrices_[slot] = std::move(weight); }
  const Buffer& vector(const std::string& slot) const { return vectors_.at(slot); }
  const Buffer& norm_weight(const Step& step) const;                       // ones where the step has none
  float factor(const Step& step) const { return factors_.at(step.name); }  // of a Scale
  const GroupWeights& group(size_t index) const { return groups_.at(index); }
  // Is some product's x rounded to int8? Then experts need not be more exact in a prefill.
  bool uses_int8() const { return uses_int8_; }
  const Buffer& head_weights(int layer) const { return heads_[static_cast<size_t>(layer)]; }

 private:
  void join(Device& device, const Plan& plan, const FusedGroup& group, const Weights& weights, GroupWeights& out);

  std::map<std::string, Weight> matrices_;
  std::map<std::string, Buffer> vectors_;
  std::map<int, Buffer> ones_;            // by size
  std::map<std::string, float> factors_;  // of Scales, by the step's name
  std::map<size_t, GroupWeights> groups_;
  bool uses_int8_ = false;
  std::vector<Buffer> heads_;  // by layer, see attention.h
};

struct GpuContext {
  // The plan and the config are copied; the weights are read and not needed afterwards, but for experts
  // that are handed over later.
  GpuContext(Device& device_, const ModelConfig& config_, const Plan& plan_, const Weights& weights_,
             const CacheSize& size, bool experts_later, const Adapters* adapters);

  Device& device;
  const ModelConfig config;
  const Plan plan;
  const int context, block;
  const std::vector<FusedGroup> groups;
  GpuWeights weights;
  bool paged = false;  // are experts? See expert_pager.h
  KvPool kv;
  const Buffer& state;        // the pool's
  std::vector<Buffer> ropes;  // by rope
  Buffer tokens;              // u32 [block]

  // A table that stays in its file: rows of the tokens that run are written to the GPU before they run.
  struct MappedTable {
    Tensor tensor;
    float scale = 1;
    Buffer rows;  // f32 [block, columns]
  };
  std::map<int, MappedTable> tables;  // by the value of the step that looks up
  void look_up(std::span<const int32_t> tokens_to_run);

  std::map<std::string, std::map<int, LoraWeights>> loras;  // by slot, then by number of the adapter
  Buffer lora_thin;                                         // f32 [block, the largest rank]; none without adapters

  const Step& step(int s) const { return plan.steps[static_cast<size_t>(s)]; }
  int width(int value) const { return plan.values[static_cast<size_t>(value)].width; }
};

}  // namespace doppler::gpu
