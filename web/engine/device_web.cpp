// device.h in a browser: every handle is a number of the page's host, which holds the WebGPU objects.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "gpu/webgpu/device_checks.h"
#include "host.h"

namespace doppler::gpu {

struct DeviceState {
  AdapterInfo info;
  std::map<std::string, Kernel> kernels;  // by source name and variant name
  uint64_t queued_write_bytes = 0;        // since the last wait
  uint64_t allocated_bytes = 0;
  HostTimes host_times;
  uint64_t submits = 0, dispatches = 0;
  ~DeviceState() {
    kernels.clear();
    host_gpu_close();
  }
};

struct BufferState {
  std::shared_ptr<DeviceState> device;
  int32_t handle = -1;
  std::string label;
  uint64_t bytes = 0;
  BufferUse use = BufferUse::kStorage;
  bool mapping = false;  // between begin_read and end_read
  ~BufferState() {
    if (handle < 0) return;
    host_gpu_buffer_free(handle);
    device->allocated_bytes -= bytes;
  }
};

struct KernelState {
  const KernelSource* source = nullptr;
  std::string variant;
  int32_t handle = -1;
  ~KernelState() {
    if (handle >= 0) host_gpu_kernel_free(handle);
  }
};

struct BindGroupState {
  int32_t handle = -1;
  std::vector<Buffer> buffers;  // kept alive
  ~BindGroupState() {
    if (handle >= 0) host_gpu_bind_group_free(handle);
  }
};

namespace {

uint32_t length(std::string_view text) { return static_cast<uint32_t>(text.size()); }

AdapterInfo read_info(const Json& json) {
  const std::string where = "the page's WebGPU";
  AdapterInfo info;
  info.name = string_or(json, "name", "", where);
  info.vendor = string_or(json, "vendor", "", where);
  info.architecture = string_or(json, "architecture", "", where);
  info.description = string_or(json, "description", "", where);
  info.backend = "WebGPU";
  Capabilities& c = info.capabilities;
  c.software = bool_or(json, "software", false, where);
  info.type = c.software ? "software" : "GPU";
  const Json& limits = require_object(json, "limits", where);
  const auto limit = [&](const char* name) { return static_cast<uint64_t>(require_number(limits, name, where)); };
  const auto limit32 = [&](const char* name) {
    return static_cast<uint32_t>(std::min<uint64_t>(limit(name), UINT32_MAX));
  };
  c.limits = {
      .max_buffer_bytes = limit("maxBufferSize"),
      .max_binding_bytes = limit("maxStorageBufferBindingSize"),
      .max_uniform_bytes = limit("maxUniformBufferBindingSize"),
      .storage_buffers = limit32("maxStorageBuffersPerShaderStage"),
      .uniform_alignment = limit32("minUniformBufferOffsetAlignment"),
      .storage_alignment = limit32("minStorageBufferOffsetAlignment"),
      .workgroup_bytes = limit32("maxComputeWorkgroupStorageSize"),
      .invocations = std::min(limit32("maxComputeInvocationsPerWorkgroup"), limit32("maxComputeWorkgroupSizeX")),
      .workgroups_per_dimension = limit32("maxComputeWorkgroupsPerDimension")};
  c.subgroups = bool_or(json, "subgroups", false, where);
  c.subgroup_min = static_cast<uint32_t>(int_or(json, "subgroupMin", 0, where));
  c.subgroup_max = static_cast<uint32_t>(int_or(json, "subgroupMax", 0, where));
  c.f16 = bool_or(json, "f16", false, where);
  c.subgroup_matrix = bool_or(json, "subgroupMatrix", false, where);
  c.f16_matrices = bool_or(json, "f16Matrices", false, where);
  c.int8_dot = bool_or(json, "int8Dot", false, where);
  c.int8_emulated = info.vendor == "apple";
  c.timestamps = bool_or(json, "timestamps", false, where);
  check_capabilities(c, info.name);
  return info;
}

std::vector<HostCommand> commands_of(const Recording& recording) {
  std::vector<HostCommand> list;
  list.reserve(recording.commands().size());
  const auto words = [](uint64_t bytes) { return static_cast<uint32_t>(bytes / 4); };
  for (const Recording::Command& command : recording.commands()) {
    if (const auto* dispatch = std::get_if<Recording::Dispatch>(&command)) {
      list.push_back({0, dispatch->kernel.state().handle, dispatch->bind_group.state().handle, dispatch->grid.x,
                      dispatch->grid.y, dispatch->grid.z});
      continue;
    }
    const auto& copy = std::get<Recording::Copy>(command);
    list.push_back({copy.from ? 1u : 2u, copy.from ? copy.from.state().handle : -1, copy.to.state().handle,
                    words(copy.from_offset), words(copy.to_offset), words(copy.bytes)});
  }
  return list;
}

// (begin, end) of every pass, from the first begin on.
std::vector<std::pair<double, double>> timed(Recording& recording, int times, bool each) {
  recording.flush_params();
  const std::vector<HostCommand> list = commands_of(recording);
  // At most a pass per command; each has a begin and an end.
  std::vector<double> clock(2 * list.size() * static_cast<size_t>(times));
  const uint32_t pairs = host_gpu_time(list.data(), static_cast<uint32_t>(list.size()), static_cast<uint32_t>(times),
                                       each, clock.data(), static_cast<uint32_t>(clock.size() / 2));
  std::vector<std::pair<double, double>> passes;
  for (size_t i = 0; i < pairs; ++i) passes.emplace_back(clock[2 * i] - clock[0], clock[2 * i + 1] - clock[0]);
  return passes;
}

}  // namespace

uint64_t Buffer::size() const { return state_->bytes; }
const std::string& Buffer::label() const { return state_->label; }
const KernelSource& Kernel::source() const { return *state_->source; }
const std::string& Kernel::variant() const { return state_->variant; }
const AdapterInfo& Device::info() const { return state_->info; }
void Device::measure(bool) {}  // for budgets, which the page has none of
bool Device::measuring() const { return false; }
uint64_t Device::allocated_bytes() const { return state_->allocated_bytes; }

Device::Device(const DeviceOptions& options) : state_(std::make_shared<DeviceState>()) {
  std::string json(host_gpu_open(options.plain), '\0');
  host_gpu_take(json.data());
  state_->info = read_info(parse_json(json, "the page's WebGPU"));
  Capabilities& c = state_->info.capabilities;
  if (options.plain) c.subgroups = c.f16 = c.subgroup_matrix = c.f16_matrices = c.int8_dot = false;
  if (c.subgroups) {
    c.subgroup_size = probe_subgroup_size(*this);
    c.subgroups = c.subgroup_size != 0;
  }
}

Device::~Device() = default;

Buffer Device::create_buffer(std::string label, uint64_t bytes, BufferUse use) {
  bytes = checked_buffer_bytes(capabilities().limits, label, bytes);
  auto buffer = std::make_shared<BufferState>();
  buffer->device = state_;
  buffer->handle = host_gpu_buffer(label.data(), length(label), static_cast<double>(bytes), static_cast<uint32_t>(use));
  buffer->label = std::move(label);
  buffer->bytes = bytes;
  buffer->use = use;
  state_->allocated_bytes += bytes;
  return Buffer(std::move(buffer));
}

void Device::write(const Buffer& buffer, uint64_t offset, std::span<const std::byte> bytes) {
  check_write(buffer, offset, bytes.size());
  // A write copies its bytes in the browser.
  write_throttled(
      offset, bytes, state_->queued_write_bytes, [&] { wait(); },
      [&](uint64_t at, std::span<const std::byte> piece) {
        host_gpu_write(buffer.state().handle, static_cast<double>(at), piece.data(),
                       static_cast<uint32_t>(piece.size()));
      });
}

Kernel Device::kernel(const KernelSource& source, const Variant& variant) {
  const std::string key = fmt::format("{} [{}]", source.name, variant.name());
  if (const auto known = state_->kernels.find(key); known != state_->kernels.end()) return known->second;
  const ComposedSource composed = compose(source, variant);
  Json about = {{"label", key}, {"constants", Json::object()}, {"bindings", Json::array()}, {"parts", Json::array()}};
  for (const auto& [name, value] : variant.constants) about["constants"][name] = value;
  for (const BindingInfo& binding : source.bindings) {
    const char* type = binding.type == BindingType::kUniform       ? "uniform"
                       : binding.type == BindingType::kReadStorage ? "read-only-storage"
                                                                   : "storage";
    about["bindings"].push_back({{"binding", binding.binding}, {"type", type}, {"size", binding.min_bytes}});
  }
  for (const ComposedSource::Part& part : composed.parts)
    about["parts"].push_back({part.first_line, part.file, part.file_line});
  const std::string text = about.dump();
  auto kernel = std::make_shared<KernelState>();
  kernel->source = &source;
  kernel->variant = variant.name();
  kernel->handle = host_gpu_kernel(text.data(), length(text), composed.text.data(), length(composed.text));
  return state_->kernels[key] = Kernel(std::move(kernel));
}

BindGroup Device::create_bind_group(const std::string& label, const Kernel& kernel,
                                    std::span<const BoundBuffer> buffers) {
  auto group = std::make_shared<BindGroupState>();
  std::vector<HostBinding> list;
  for (const BoundBuffer& bound : checked_bindings(label, kernel.source(), buffers)) {
    list.push_back({kernel.source().bindings[list.size()].binding, bound.buffer.state().handle,
                    static_cast<double>(bound.offset), static_cast<double>(bound.size)});
    group->buffers.push_back(bound.buffer);
  }
  group->handle = host_gpu_bind_group(label.data(), length(label), kernel.state().handle, list.data(),
                                      static_cast<uint32_t>(list.size()));
  return BindGroup(std::move(group));
}

// The browser encodes and submits in one call, so all of it counts as encoding.
void Device::submit(Recording& recording, int times) {
  const auto start = std::chrono::steady_clock::now();
  recording.flush_params();
  const std::vector<HostCommand> list = commands_of(recording);
  host_gpu_submit(recording.label().data(), length(recording.label()), list.data(), static_cast<uint32_t>(list.size()),
                  static_cast<uint32_t>(times));
  const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
  state_->host_times.encode_ns += taken.count();
  ++state_->submits;
  state_->dispatches += recording.dispatches() * static_cast<uint64_t>(times);
}

HostTimes Device::host_times() const { return state_->host_times; }
void Device::submit_in_parts(Recording& recording) { submit(recording); }

uint64_t Device::submits() const { return state_->submits; }
uint64_t Device::dispatches() const { return state_->dispatches; }

std::vector<StepTime> Device::profile(Recording& recording) {
  require_timestamps(*this);
  if (recording.dispatches() == 0) return {};
  return step_times(recording, timed(recording, 1, true));
}

double Device::time_ns(Recording& recording, int times) {
  require_timestamps(*this);
  if (recording.dispatches() == 0 || times < 1) return 0;
  return timed(recording, times, false).back().second;
}

void Device::read(const Buffer& buffer, uint64_t offset, std::span<std::byte> out) {
  check_read(buffer, offset, out.size());
  if (!out.empty()) {
    host_gpu_read(buffer.state().handle, static_cast<double>(offset), out.data(), static_cast<uint32_t>(out.size()));
  }
  state_->queued_write_bytes = 0;
}

void Device::begin_read(const Buffer& readback) {
  BufferState& buffer = readback.state();
  if (buffer.use != BufferUse::kReadback || buffer.mapping) {
    fail({.code = ErrorCode::kInternal, .what = "begin_read needs an idle readback buffer", .where = buffer.label});
  }
  buffer.mapping = true;
  host_gpu_begin_read(buffer.handle);
}

void Device::end_read(const Buffer& readback, uint64_t bytes,
                      const std::function<void(std::span<const std::byte>)>& see) {
  BufferState& buffer = readback.state();
  if (!buffer.mapping || bytes > buffer.bytes) {
    fail({.code = ErrorCode::kInternal, .what = "end_read without begin_read, or of too much", .where = buffer.label});
  }
  std::vector<std::byte> out(static_cast<size_t>(bytes));
  host_gpu_end_read(buffer.handle, out.data(), static_cast<uint32_t>(out.size()));
  buffer.mapping = false;
  see(out);
}

void Device::wait() {
  host_gpu_wait();
  state_->queued_write_bytes = 0;
}

void Device::lose(const std::string& message) { host_gpu_lose(message.data(), length(message)); }

}  // namespace doppler::gpu
