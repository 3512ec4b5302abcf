// Looking into a decode: copies made on the GPU inside the recording, read after the submit.
#pragma once

#include "gpu/gpu_context.h"
#include "model/executor.h"

namespace doppler::gpu {

Variant choose_tap(const Capabilities& capabilities);

// Steps that must stand alone so that what lies between them can be seen: every step of a layer that has a tapped one.
TapSteps alone_for(const Plan& plan, const TapSteps& tapped);

// The rows of tapped values, one a token of a submit.
class DecodeTaps {
 public:
  // `tapped` null: nothing is kept.
  DecodeTaps(GpuContext& context, const TapSteps* tapped);

  bool wants(const Step& step) const { return offsets_.count(step.output) > 0; }
  void record(Recording& recording, const Step& step, const BoundBuffer& value) const;

  // Hands the rows of `count` tokens from `position` on to the tap, token by token in the plan's order.
  void hand_over(int count, int position, const Tap& tap) const;

 private:
  GpuContext& c_;
  std::map<int, uint32_t> offsets_;  // by value: where it lies in a row
  uint32_t stride_ = 0;
  Buffer rows_;  // f32 [kMostDecodeBatch, stride]
};

}  // namespace doppler::gpu
