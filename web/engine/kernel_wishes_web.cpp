// A page's engine chooses its kernels by itself: there is nobody to wish for others, so none are listed or looked for.
#include "model/kernel_wishes.h"

#include "gpu/run/kernel_kinds.h"

namespace doppler {

bool names_variant(std::string_view, std::string_view) { return false; }
void check_kernel_wishes(const KernelWishes&, std::span<const KernelKind>, std::string_view) {}
std::string_view wish_for(const KernelWishes&, const std::string&) { return {}; }

namespace gpu {

std::vector<KernelKind> kernel_kinds(const GpuContext&) { return {}; }

}  // namespace gpu
}  // namespace doppler
