#include "gpu/ops/norm.h"

#include "gpu/wgsl/norm.h"

namespace doppler::gpu {

Variant choose_norm(const Capabilities& capabilities, const NormShape& shape) {
  const uint32_t threads = shape.width <= 256 ? 64 : shape.width <= 1024 ? 128 : 256;
  return {{{"reduce", capabilities.subgroups ? "subgroup" : "plain"}}, {{"threads", threads}}};
}

void record_norm(Recording& recording, const std::string& step, const BoundBuffer& x, const BoundBuffer& weight,
                 const BoundBuffer& out, const NormShape& shape, float eps, float offset) {
  const Capabilities& capabilities = recording.device().capabilities();
  recording.dispatch<wgsl::Norm>(
      step, choose_norm(capabilities, shape),
      {.groups = static_cast<uint32_t>(shape.groups), .width = shape.width, .eps = eps, .offset = offset},
      {.x = x, .weight = weight, .out = out}, linear_grid(shape.groups, capabilities.limits));
}

}  // namespace doppler::gpu
