// A GPU in words, for those who list them.
#pragma once

#include "base/json.h"
#include "gpu/webgpu/capabilities.h"

namespace doppler {

Json to_json(const gpu::AdapterInfo& adapter);
std::string to_text(size_t index, const gpu::AdapterInfo& adapter);  // some lines

}  // namespace doppler
