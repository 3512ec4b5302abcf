// A page bounds no GPU memory, so nothing is paged here.
#include "gpu/run/expert_pager.h"

namespace doppler::gpu {

Device& check_budget(Device& device, const ModelConfig&, const Plan&, const Weights&, const CacheSize&,
                     const GpuBudget&, const Adapters*) {
  return device;
}
uint64_t tapped_bytes(const GpuContext&, const TapSteps&, int, int) { return 0; }
std::unique_ptr<ExpertPager> place_experts(GpuContext&, const Weights&, const GpuBudget&) { return nullptr; }

}  // namespace doppler::gpu
