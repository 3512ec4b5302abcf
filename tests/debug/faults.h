// Ways in which engines have gone wrong, planted: the run under test gets an altered config, plan or weights (or
// loses count of its tokens), the other side stays true.
#pragma once

#include <algorithm>
#include <functional>
#include <list>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "engine/loaded_model.h"

namespace doppler::testing {

// What the faulty run is made from.
struct AlteredModel {
  ModelConfig config;
  Plan plan;
  Weights weights;
  std::list<std::vector<std::byte>> bytes;  // of weights that were changed
  int slip_at = -1;                         // the position counter jumps by one before this token
  int stale_at = -1;                        // from this token on the second page of the cache is read from the first
};

struct Fault {
  std::string name;
  std::string model;  // "gemma3-a f32", "tiny", or with a prompt of several pages "llama-a f32 long"
  std::string step;   // the first that is wrong
  std::string cause;  // part of the sentence
  std::function<void(AlteredModel&)> plant;
};

inline void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

inline void rebuild(AlteredModel& f) { f.plan = build_plan(f.config); }

// Weights that no step uses any more are dropped, as an engine that skips a step would never touch them.
inline void rebuild_without(AlteredModel& f, const std::string& part) {
  rebuild(f);
  Weights kept;
  for (const auto& [slot, tensor] : f.weights.all()) {
    if (slot.size() < part.size() || slot.compare(slot.size() - part.size(), part.size(), part) != 0) {
      kept.add(slot, tensor);
    }
  }
  f.weights = kept;
}

inline void corrupt_block(AlteredModel& f, const std::string& slot, size_t row, size_t block) {
  Tensor tensor = f.weights.at(slot);
  std::vector<std::byte>& copy = f.bytes.emplace_back(tensor.bytes.begin(), tensor.bytes.end());
  constexpr size_t kBlockBytes = 144, kHeader = 16;  // Q4_K: two scales, twelve bytes of six-bit scales, 128 of nibbles
  const size_t at = row * tensor.stride() + block * kBlockBytes + kHeader;
  for (size_t i = 0; i < kBlockBytes - kHeader; ++i) copy[at + i] ^= std::byte{0x5a};
  tensor.bytes = copy;
  f.weights.add(slot, tensor);
}

inline std::vector<Fault> planted_faults() {
  const auto local = [](const ModelConfig& config, auto change) {
    for (const LayerConfig& layer : config.layers) {
      if (layer.window > 0) return change(layer);
    }
  };
  return {
      {"NormOffsetDropped", "gemma3-a f32", "layer0.attn_norm", "norm offset 0 where 1 fits",
       [](AlteredModel& f) {
         f.config.norm_offset = 0;
         rebuild(f);
       }},
      {"EmbeddingScaleDropped", "gemma3-a f32", "embed", "embedding scale 1 where 12.6491 (√hidden) fits",
       [](AlteredModel& f) {
         f.config.embed_scale = 1;
         rebuild(f);
       }},
      {"WrongRopeBaseOnLocalLayers", "gemma3-a f32", "layer0.q_rope", "rope base 1000000 where 10000 fits",
       [local](AlteredModel& f) {
         const double global = f.config.ropes[0].theta;
         local(f.config, [&](const LayerConfig& layer) {
           f.config.ropes[static_cast<size_t>(layer.rope)].theta = global == 1e6 ? 1e6 : 1e4;
         });
         rebuild(f);
       }},
      {"WindowOffByOne", "gemma3-a f32", "layer0.attention", "window 9 where 8 fits",
       [](AlteredModel& f) {
         for (LayerConfig& layer : f.config.layers) layer.window += layer.window > 0 ? 1 : 0;
         rebuild(f);
       }},
      {"QkNormSkipped", "gemma3-a f32", "layer0.q_norm", "does not compute this step",
       [](AlteredModel& f) {
         f.config.qk_norm = false;
         rebuild_without(f, "q_norm");
         rebuild_without(f, "k_norm");
       }},
      {"PostFfnNormSkipped", "gemma3-a f32", "layer0.post_ffn_norm", "does not compute this step",
       [](AlteredModel& f) {
         f.config.post_ffn_norm = false;
         rebuild_without(f, "post_ffn_norm");
       }},
      {"LogitSoftCapSkipped", "gemma2-a f32", "logits", "soft-cap none where 30 fits",
       [](AlteredModel& f) {
         f.config.logit_softcap = 0;
         rebuild(f);
       }},
      {"AttentionSoftCapSkipped", "gemma2-a f32", "layer0.attention", "soft-cap of the scores none where 50 fits",
       [](AlteredModel& f) {
         f.config.attn_softcap = 0;
         rebuild(f);
       }},
      {"QNormOffsetDropped", "gemma3-a f32", "layer2.q_norm", "norm offset 0 where 1 fits",
       [](AlteredModel& f) {
         for (Step& step : f.plan.steps) {
           if (step.name == "layer2.q_norm") std::get<Norm>(step.op).offset = 0;
         }
       }},
      {"GateAndUpSwapped", "gemma3-a f32", "layer0.gate_proj", "weight layer0.gate_proj where layer0.up_proj fits",
       [](AlteredModel& f) {
         for (int i = 0; i < f.config.layer_count(); ++i) {
           const std::string layer = "layer" + std::to_string(i);
           const Tensor gate = f.weights.at(layer + ".gate_proj");
           f.weights.add(layer + ".gate_proj", f.weights.at(layer + ".up_proj"));
           f.weights.add(layer + ".up_proj", gate);
         }
       }},
      {"OneQ4KBlockCorrupted", "tiny", "layer5.gate_proj", "only column 333 of 1024 is wrong",
       [](AlteredModel& f) { corrupt_block(f, "layer5.gate_proj", 333, 1); }},
      {"KvPositionOffByOne", "gemma3-a f32", "layer0.q_rope", "position p + 1 from 11 on where the plan says p",
       [](AlteredModel& f) { f.slip_at = 11; }},
      {"StalePageTable", "llama-a f32 long", "layer0.attention", "page of the cache for positions",
       [](AlteredModel& f) { f.stale_at = 130; }},
  };
}

}  // namespace doppler::testing
