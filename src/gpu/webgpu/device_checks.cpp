#include "gpu/webgpu/device_checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace doppler::gpu {

uint64_t checked_buffer_bytes(const Limits& limits, const std::string& label, uint64_t bytes) {
  bytes = (std::max<uint64_t>(bytes, 16) + 15) / 16 * 16;
  if (bytes > limits.max_buffer_bytes) {
    fail({.code = ErrorCode::kMemory,
          .what = "a buffer is larger than this device allows",
          .where = label,
          .expected = fmt::format("up to {} bytes", limits.max_buffer_bytes),
          .got = fmt::format("{}", bytes),
          .todo = "Use a smaller context or a smaller model"});
  }
  return bytes;
}

void check_write(const Buffer& buffer, uint64_t offset, size_t bytes) {
  if (offset % 4 == 0 && bytes % 4 == 0 && offset <= buffer.size() && bytes <= buffer.size() - offset) return;
  fail({.code = ErrorCode::kInternal,
        .what = "a write does not fit its buffer",
        .where = buffer.label(),
        .expected = fmt::format("multiples of 4 within {} bytes", buffer.size()),
        .got = fmt::format("{} bytes at {}", bytes, offset)});
}

void check_read(const Buffer& buffer, uint64_t offset, size_t bytes) {
  if (offset % 4 == 0 && offset <= buffer.size() && bytes <= buffer.size() - offset) return;
  fail({.code = ErrorCode::kInternal,
        .what = "a read leaves its buffer",
        .where = buffer.label(),
        .expected = fmt::format("within {} bytes", buffer.size()),
        .got = fmt::format("{} bytes at {}", bytes, offset)});
}

void write_throttled(uint64_t offset, std::span<const std::byte> bytes, uint64_t& queued,
                     const std::function<void()>& wait,
                     const std::function<void(uint64_t offset, std::span<const std::byte> piece)>& write) {
  while (!bytes.empty()) {
    const std::span<const std::byte> piece = bytes.first(std::min<size_t>(bytes.size(), kMaxQueuedBytes));
    if (queued + piece.size() > kMaxQueuedBytes) wait();
    write(offset, piece);
    queued += piece.size();
    offset += piece.size();
    bytes = bytes.subspan(piece.size());
  }
}

std::vector<BoundBuffer> checked_bindings(const std::string& label, const KernelSource& source,
                                          std::span<const BoundBuffer> buffers) {
  if (buffers.size() != source.bindings.size()) {
    fail({.code = ErrorCode::kInternal,
          .what = fmt::format("kernel {} is given a wrong number of buffers", source.name),
          .where = label,
          .expected = fmt::format("{}", source.bindings.size()),
          .got = fmt::format("{}", buffers.size())});
  }
  std::vector<BoundBuffer> out(buffers.begin(), buffers.end());
  for (size_t i = 0; i < out.size(); ++i) {
    BoundBuffer& bound = out[i];
    const auto refuse = [&](std::string what, std::string expected, std::string got) {
      fail({.code = ErrorCode::kInternal,
            .what = std::move(what),
            .where = fmt::format("{}: binding {} of kernel {}", label, source.bindings[i].name, source.name),
            .expected = std::move(expected),
            .got = std::move(got)});
    };
    if (!bound.buffer) refuse("a buffer is missing", "", "");
    if (bound.offset > bound.buffer.size() || bound.size > bound.buffer.size() - bound.offset) {
      refuse("a bound range leaves its buffer", fmt::format("within {} bytes", bound.buffer.size()),
             fmt::format("{} at {}", bound.size, bound.offset));
    }
    if (bound.size == 0) bound.size = bound.buffer.size() - bound.offset;
    for (size_t j = 0; j < i; ++j) {
      const bool writes = source.bindings[i].type == BindingType::kStorage;
      const bool writes_too = source.bindings[j].type == BindingType::kStorage;
      const bool overlap = bound.offset < out[j].offset + out[j].size && out[j].offset < bound.offset + bound.size;
      if (bound.buffer == out[j].buffer && (writes != writes_too || (writes && overlap))) {
        refuse("a buffer that the kernel writes is bound to it twice: " + bound.buffer.label(), "", "");
      }
    }
  }
  return out;
}

void require_timestamps(const Device& device) {
  if (device.capabilities().timestamps) return;
  fail({.code = ErrorCode::kUnsupported, .what = "this device has no timestamp queries", .where = device.info().name});
}

std::vector<StepTime> step_times(const Recording& recording, std::span<const std::pair<double, double>> passes) {
  std::vector<StepTime> steps;
  for (const Recording::Command& command : recording.commands()) {
    const auto* dispatch = std::get_if<Recording::Dispatch>(&command);
    if (!dispatch) continue;
    const auto& [begin, end] = passes[steps.size()];
    steps.push_back({dispatch->step, begin, end});
  }
  return steps;
}

}  // namespace doppler::gpu
