// WebGPU in a small vocabulary: Device, Buffer, Kernel, BindGroup. A Recording (recording.h) is a list of dispatches
// and copies that a Device submits, once or again and again.
//
// This header is filled twice: device_dawn.cpp natively, and by the page's host in the browser. Everything above it is
// the same code. Handles are shared: a bind group keeps its buffers, a recording keeps its bind groups and kernels, and
// the device itself lives until the last of them is gone. Memory of a buffer that a submitted recording uses is given
// back only when the GPU has finished with it (WebGPU promises that), so nothing is freed in flight.
//
// Every call can fail() with kDevice or kMemory, Dawn's message and the label of what it happened to. A lost device
// fails every later call; a new Device may then be opened in the same process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/webgpu/capabilities.h"
#include "gpu/webgpu/kernel_source.h"

namespace doppler::gpu {

class Recording;
struct DeviceState;
struct BufferState;
struct KernelState;
struct BindGroupState;

enum class BufferUse : uint8_t {
  kStorage,   // read and written by kernels; copied from and to
  kUniform,   // parameters
  kReadback,  // the host reads it: only a copy's target
};

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::shared_ptr<BufferState> state) : state_(std::move(state)) {}
  explicit operator bool() const { return state_ != nullptr; }
  uint64_t size() const;  // bytes, a multiple of 16
  const std::string& label() const;
  BufferState& state() const { return *state_; }
  bool operator==(const Buffer&) const = default;

 private:
  std::shared_ptr<BufferState> state_;
};

// A range of a buffer as a kernel sees it. The offset must be a multiple of Limits::storage_alignment.
struct BoundBuffer {
  BoundBuffer() = default;
  BoundBuffer(Buffer b) : buffer(std::move(b)) {}  // NOLINT: a whole buffer is a range
  BoundBuffer(Buffer b, uint64_t from, uint64_t bytes) : buffer(std::move(b)), offset(from), size(bytes) {}
  Buffer buffer;
  uint64_t offset = 0;
  uint64_t size = 0;  // 0: to the end of the buffer
};

// One pipeline with its explicit layout: a kernel source in one variant.
class Kernel {
 public:
  Kernel() = default;
  explicit Kernel(std::shared_ptr<KernelState> state) : state_(std::move(state)) {}
  explicit operator bool() const { return state_ != nullptr; }
  const KernelSource& source() const;
  const std::string& variant() const;  // its name
  KernelState& state() const { return *state_; }
  bool operator==(const Kernel&) const = default;

 private:
  std::shared_ptr<KernelState> state_;
};

class BindGroup {
 public:
  BindGroup() = default;
  explicit BindGroup(std::shared_ptr<BindGroupState> state) : state_(std::move(state)) {}
  BindGroupState& state() const { return *state_; }

 private:
  std::shared_ptr<BindGroupState> state_;
};

// GPU time of a submitted recording, from timestamp queries.
struct StepTime {
  std::string step;
  double begin_ns = 0, end_ns = 0;  // on the GPU's clock, counted from the first step's begin
};

// What submits have cost the host so far.
struct HostTimes {
  double encode_ns = 0, submit_ns = 0;
};

struct DeviceOptions {
  int adapter = -1;        // index into list_adapters(); -1: the first
  bool unchecked = false;  // no bounds checks in kernels, no zeroing of workgroup memory. For proven kernels only.
  bool plain = false;      // take none of the optional features but timestamps, as a lesser device would
  KernelWishes kernels = {};
  // For tests: what the device is then believed to do.
  std::function<void(Capabilities&)> believed = {};
};

// The adapters of this machine, hardware first. Fails if there is no WebGPU at all.
std::vector<AdapterInfo> list_adapters();

// Is there a WebGPU implementation with at least one adapter? If not, *why says what is missing.
bool webgpu_available(std::string* why);

// Whether the WebGPU library itself can be loaded; if not, the reason is in *why.
bool webgpu_library_found(std::string* why);
std::string webgpu_library_path();  // empty where it cannot

// Bytes in live buffers of all devices of this process.
uint64_t live_buffer_bytes();

class Device {
 public:
  // An invalid index, a missing library or a driver that refuses is an error.
  explicit Device(const DeviceOptions& options = {});
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const AdapterInfo& info() const;
  const Capabilities& capabilities() const { return info().capabilities; }

  // `bytes` is rounded up to a multiple of 16; the memory starts as zeros.
  Buffer create_buffer(std::string label, uint64_t bytes, BufferUse use = BufferUse::kStorage);

  // While on, buffers have a size but no memory: they count in allocated_bytes(), and what is written to them is
  // dropped. So what a model will take is known before anything is uploaded.
  void measure(bool on);
  bool measuring() const;

  // Queued in order with submits. Offset and size must be multiples of 4. Large amounts are throttled, so that no more
  // than a few tens of MiB wait in host memory.
  void write(const Buffer& buffer, uint64_t offset, std::span<const std::byte> bytes);

  // The pipeline of a variant; compiled once, then found again by name.
  Kernel kernel(const KernelSource& source, const Variant& variant);

  // `buffers` in the order of source.bindings.
  BindGroup create_bind_group(const std::string& label, const Kernel& kernel, std::span<const BoundBuffer> buffers);

  // Encodes and submits `times` repetitions of the recording. Returns at once.
  void submit(Recording& recording, int times = 1);

  // Once, in several submits: the GPU is at the first commands while the others are encoded. For a recording whose
  // result is waited for.
  void submit_in_parts(Recording& recording);

  // Submits once with timestamps around every dispatch (each in a pass of its own, so gaps are larger than in a plain
  // submit), waits, and returns one entry per dispatch. Fails without the timestamp-query feature.
  std::vector<StepTime> profile(Recording& recording);

  // GPU time in nanoseconds from the first to the last dispatch of `times` repetitions in one pass; waits.
  double time_ns(Recording& recording, int times = 1);

  // Copies a range to the host and waits for it, after all that was submitted.
  void read(const Buffer& buffer, uint64_t offset, std::span<std::byte> out);

  // For buffers of use kReadback: begin_read asks for the contents as they will be after everything submitted so far;
  // end_read waits for them and shows the first `bytes`, where they lie if it can. Between the two the buffer must not
  // be used.
  void begin_read(const Buffer& readback);
  void end_read(const Buffer& readback, uint64_t bytes, const std::function<void(std::span<const std::byte>)>& see);
  void end_read(const Buffer& readback, std::span<std::byte> out) {  // copies them
    end_read(readback, out.size(),
             [&](std::span<const std::byte> bytes) { std::copy(bytes.begin(), bytes.end(), out.begin()); });
  }

  // Until everything submitted so far is done.
  void wait();

  HostTimes host_times() const;

  // Bytes in live buffers of this device.
  uint64_t allocated_bytes() const;
  // Since the device was opened.
  uint64_t submits() const;
  uint64_t dispatches() const;

  // Makes the driver lose the device, as a reset would. For tests.
  void lose(const std::string& message);

  DeviceState& state() const { return *state_; }

 private:
  std::shared_ptr<DeviceState> state_;
};

template <class T>
void write(Device& device, const Buffer& buffer, std::span<const T> values, uint64_t offset = 0) {
  device.write(buffer, offset, std::as_bytes(values));
}

template <class T>
std::vector<T> read(Device& device, const Buffer& buffer, size_t count, uint64_t offset = 0) {
  std::vector<T> values(count);
  device.read(buffer, offset, std::as_writable_bytes(std::span<T>(values)));
  return values;
}

}  // namespace doppler::gpu
