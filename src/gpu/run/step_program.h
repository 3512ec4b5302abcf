// A block of tokens, step by step: what prefill runs, and where taps see every step. One dispatch per step (a matrix
// product may take two: its input is made int8 or f16 first where that is faster).
#pragma once

#include <list>
#include <memory>

#include "gpu/ops/experts.h"
#include "gpu/ops/matmul.h"
#include "gpu/run/gpu_context.h"
#include "model/executor.h"

namespace doppler::gpu {

// How a block's products are made, so that a prompt's numbers do not depend on how it is cut.
inline constexpr int kLikeTokens = 512;
MatmulShape matmul_shape(const Weight& weight, int tokens);

// The steps of experts by themselves: a block's, or those of a single token that are recomputed for taps.

// What the products of experts of up to `tokens` tokens need besides their values: the grouping, and x as int8 where it
// is so (in a buffer of its own: that of other products is narrower).
struct ExpertMemory {
  ExpertMemory(GpuContext& context, int tokens);

  ExpertMap map;                   // none without experts
  QuantizedActivations quantized;  // none where x stays in f32
};

ExpertMatmulShape expert_shape(const GpuContext& context, const Step& step, int tokens);

// What the memory's map holds at a point of a recording.
struct MappedRoute {
  int value = -1;  // the route's, in the plan
  uint32_t tile_tokens = 0;
  bool operator==(const MappedRoute&) const = default;
};

// step is an ExpertMatMul; x, route and out as in the plan, for `tokens` tokens. Products of one
// route share its map where `mapped` is kept from one to the next.
void record_expert_step(Recording& recording, const GpuContext& context, const ExpertMemory& memory, const Step& step,
                        int tokens, const Buffer& x, const Buffer& route, const Buffer& out,
                        MappedRoute* mapped = nullptr);

// Memory for the values of a block; programs that do not run at the same time share it.
struct ActivationBuffers {
  ActivationBuffers(GpuContext& context, BufferPlan plan, int tokens);

  BufferPlan plan;
  std::vector<Buffer> buffers;     // by BufferPlan
  QuantizedActivations quantized;  // the input of a matrix product as int8; empty where the device has no int8 products
  F16Activations f16;              // …as f16; empty where it has no subgroup matrices
  Buffer scratch;                  // of products that split their columns
  ExpertMemory experts;
};

// A piece of a block's recording. There is more than one where experts are paged: then a product of experts is a part
// of its own, and somebody must bring them and write the map before it is submitted (expert_pager.h).
struct StepPart {
  static constexpr size_t kParamBytes = 4 << 10;  // at a time, where there are many parts

  explicit StepPart(Device& device) : recording(device, "block") {}
  StepPart(Device& device, const Step* product) : recording(device, "block part", kParamBytes), experts(product) {}

  Recording recording;
  const Step* experts = nullptr;  // the product that this is
  uint32_t tile_tokens = 0;       // of its map
};

// What a program runs. Its numbers depend on the phase and the wish, never on how many tokens there are; in
// Phase::kDecode there is one.
struct StepShape {
  int tokens = 0;
  Logits want = Logits::kNone;
  Phase phase = Phase::kPrefill;
  AdapterUses adapters = {};

  int logit_rows() const { return want == Logits::kAll ? tokens : want == Logits::kLast ? 1 : 0; }
  auto operator<=>(const StepShape&) const = default;
};

class StepProgram {
 public:
  // The outputs of tapped steps are copied, inside the recording, to buffers of their own (`tapped` null: no step is).
  StepProgram(GpuContext& context, std::shared_ptr<ActivationBuffers> memory, const StepShape& shape,
              const TapSteps* tapped = nullptr);

  std::list<StepPart>& parts() { return parts_; }
  const StepShape& shape() const { return shape_; }
  int tokens() const { return tokens_; }
  int logit_rows() const { return logit_rows_; }

  // Of a product of experts: the value of its route, and its map.
  const Buffer& route(const Step& step) const { return value(step.inputs[1]); }
  const ExpertMap& map() const { return memory_->experts.map; }

  // The output of the last step after a run.
  Buffer logits() const { return value(c_.plan.steps.back().output); }
  // The copy of a tapped step's output: none for steps that did not run.
  Buffer tapped(const Step& step) const;
  int rows(const Step& step) const { return step.logits_only ? logit_rows_ : tokens_; }

 private:
  void record(const Embed& op, const Step& step);
  void record(const Norm& op, const Step& step);
  void record(const MatMul& op, const Step& step);
  void record(const Rope& op, const Step& step);
  void record(const Attention& op, const Step& step);
  void record(const Glu& op, const Step& step);
  void record(const Add& op, const Step& step);
  void record(const SoftCap& op, const Step& step);
  void record(const Scale& op, const Step& step);
  void record(const ShortConv& op, const Step& step);
  void record(const DeltaNet& op, const Step& step);
  void record(const Part& op, const Step& step);
  void record(const Route& op, const Step& step);
  void record(const ExpertMatMul& op, const Step& step);
  void record(const Combine& op, const Step& step);

  Recording& recording() { return parts_.back().recording; }  // that grows
  const Buffer& value(int v) const;
  const Buffer& shared_value(int v) const;  // of all tokens
  Buffer& own_value(const Step& step);
  void take_last_row(const Step& step);
  void tap(const Step& step);
  void tap_keys(const Step& k);
  void matmul(const Step& step, int tokens);
  void adapt(const Step& step, int tokens);

  GpuContext& c_;
  std::shared_ptr<ActivationBuffers> memory_;
  const StepShape shape_;
  const int tokens_, logit_rows_;
  std::list<StepPart> parts_;
  std::map<int, Buffer> own_;           // values of steps that run for some tokens only
  std::map<int, const Step*> rotated_;  // by value: the rope step whose work the attention step does
  int last_row_of_ = -1;                // the value whose last row was taken
  MappedRoute mapped_;
  int quantized_value_ = -1;    // the value that memory_->quantized holds
  int f16_value_ = -1;          // …memory_->f16
  std::map<int, Buffer> taps_;  // by value
};

}  // namespace doppler::gpu
