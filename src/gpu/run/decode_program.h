// One token from its id to the choice of the next, in as few dispatches as the fusions allow (five or six per layer).
// The recording is made once and replayed for every token: what changes lies in DecodeState.
#pragma once

#include <optional>

#include "gpu/ops/project.h"
#include "gpu/ops/sample.h"
#include "gpu/run/gpu_context.h"
#include "gpu/run/step_program.h"
#include "gpu/run/tap.h"
#include "model/sampling.h"

namespace doppler::gpu {

class DecodeProgram {
 public:
  static constexpr int kKeptTokens = 4096;  // that can be chosen before the state's count goes back to zero

  // Can this device run the fused kernels with this model's shapes?
  static bool possible(const GpuContext& context);

  // Without sampling nothing is chosen: the logits are kept, and DecodeState stays as it is. What tapped steps (null:
  // none) make is kept for each token. The token takes the same fused way; what a fusion does not store is recomputed
  // from what the fusion read.
  DecodeProgram(GpuContext& context, const std::optional<Sampling>& sampling, const TapSteps* tapped = nullptr);

  // The text that a repetition penalty looks at, up to the token that runs next; tokens chosen from there on are added
  // by the kernels.
  void set_text(std::span<const int32_t> before, int32_t token);

  Recording& recording() { return recording_; }
  const std::optional<Sampling>& sampling() const { return sampling_; }
  const Buffer& logits() const { return value(c_.plan.steps.back().output); }
  const Buffer& out_tokens() const { return out_tokens_; }  // kKeptTokens of them
  const DecodeTaps& taps() const { return taps_; }

 private:
  void make_choice_buffers();
  void record_group(size_t index);
  void project_norm(size_t index);
  void attention(const FusedGroup& group);
  void merge(const FusedGroup& group);
  void experts_up(const FusedGroup& group);
  void experts_down(const FusedGroup& group);
  void single(const Step& step, bool stored);
  void record_recomputed();
  bool only_best() const;  // is the likeliest token all that anybody wants of the logits?
  void choose(const BoundBuffer& logits);
  bool leaves_int8(size_t index) const;  // the group's result, for the projection that follows and nobody else
  const Buffer& value(int v) const;
  const Buffer& qkv(int layer) const;
  const Buffer& partials(int layer) const;
  const std::string& name(const FusedGroup& group) const;  // of its last step

  GpuContext& c_;
  const std::optional<Sampling> sampling_;
  Recording recording_;
  const std::vector<FusedGroup>& groups_;
  const DecodeTaps taps_;
  BufferPlan plan_;
  std::vector<Buffer> buffers_;
  Buffer qkv_, partials_, between_, spare_, out_tokens_, seen_, pairs_, bins_, list_;
  uint32_t pair_count_ = 0;
  std::map<int, Buffer> own_partials_;           // of layers whose attention is tapped
  std::vector<uint32_t> splits_;                 // by layer
  std::unique_ptr<ExpertMemory> expert_memory_;  // of experts that are recomputed for taps
};

}  // namespace doppler::gpu
