// A model of any shape with random weights in any format.
#pragma once

#include <list>

#include "cpu/test_random.h"
#include "model/plan.h"
#include "model/weights.h"
#include "support/model_configs.h"

namespace doppler::testing {

struct RandomModel {
  ModelConfig config;
  Plan plan;
  Weights weights;

  // Matrices of `type`; norms, biases, sinks and routers in f32.
  RandomModel(ModelConfig c, DType type, uint64_t seed = 1) : config(std::move(c)), plan(build_plan(config)) {
    Random random(seed);
    for (const Step& step : plan.steps) {
      for (const WeightUse& use : step.weights) {
        if (weights.find(use.slot)) continue;
        const bool matrix = use.shape.size() > 1 && !use.slot.ends_with("bias") && !use.slot.ends_with("router");
        const bool norm = use.slot.find("norm") != std::string::npos || use.slot.ends_with("_scale");
        const float sigma =
            matrix || use.slot.ends_with("router") ? 1.5f / std::sqrt(static_cast<float>(use.shape.back())) : 0.3f;
        OwnedTensor& t = owned_.emplace_back(use.slot, matrix ? type : DType::kF32, use.shape, random, sigma);
        if (norm && config.norm_offset == 0) {  // around 1, not around 0
          for (int64_t i = 0; i < t.tensor.cols(); ++i) {
            float v;
            std::memcpy(&v, t.bytes.data() + i * 4, 4);
            v += 1;
            std::memcpy(t.bytes.data() + i * 4, &v, 4);
          }
        }
        weights.add(use.slot, t.tensor);
      }
    }
  }

  std::vector<int32_t> tokens(int n, uint64_t seed = 5) const {
    Random random(seed);
    std::vector<int32_t> ids;
    for (int i = 0; i < n; ++i) ids.push_back(random.below(config.vocab));
    return ids;
  }

 private:
  std::list<OwnedTensor> owned_;
};

// Sizes that are no multiple of anything, and more of everything than one tile holds.
inline ModelConfig odd_config() {
  ModelConfig c =
      with_sizes(quirky_config(), {.hidden = 100, .ffn = 290, .vocab = 331, .heads = 6, .kv_heads = 2, .head_dim = 38});
  c.id = "odd";
  c.attn_scale = 0.16f;
  c.layers = {{19, 1}, {19, 1}, {0, 0}, {7, 1}};
  c.max_context = 512;
  return c;
}

inline ModelConfig odd_expert_config() {
  ModelConfig c =
      with_sizes(expert_config(), {.hidden = 96, .ffn = 64, .vocab = 211, .heads = 8, .kv_heads = 2, .head_dim = 24});
  c.id = "odd experts";
  c.attn_scale = 0.2f;
  c.experts = 5;
  c.experts_per_token = 3;
  c.max_context = 512;
  return c;
}

}  // namespace doppler::testing
