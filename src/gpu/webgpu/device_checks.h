// What both sides that fill device.h (device_dawn.cpp natively, web/engine/device_web.cpp) check and do alike.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gpu/webgpu/recording.h"

namespace doppler::gpu {

// The size of a buffer for `bytes`: a multiple of 16. Fails (kMemory) where the device allows less.
uint64_t checked_buffer_bytes(const Limits& limits, const std::string& label, uint64_t bytes);

// Fail (kInternal) for ranges outside the buffer or its alignment.
void check_write(const Buffer& buffer, uint64_t offset, size_t bytes);
void check_read(const Buffer& buffer, uint64_t offset, size_t bytes);

// Bytes of writes that may wait in host memory.
inline constexpr uint64_t kMaxQueuedBytes = 32u << 20;

// Writes `bytes` piece by piece and waits whenever more than kMaxQueuedBytes would be queued. queued: what was written
// since the last wait, which sets it to zero.
void write_throttled(uint64_t offset, std::span<const std::byte> bytes, uint64_t& queued,
                     const std::function<void()>& wait,
                     const std::function<void(uint64_t offset, std::span<const std::byte> piece)>& write);

// The buffers of a bind group with their sizes filled in. Fails (kInternal) where one is missing, leaves its buffer, or
// is bound a second time although the kernel writes it.
std::vector<BoundBuffer> checked_bindings(const std::string& label, const KernelSource& source,
                                          std::span<const BoundBuffer> buffers);

void require_timestamps(const Device& device);

// The steps of a recording with the times of their passes, one per dispatch.
std::vector<StepTime> step_times(const Recording& recording, std::span<const std::pair<double, double>> passes);

}  // namespace doppler::gpu
