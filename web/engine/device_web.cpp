// device.h in a browser: every handle is a number of the page's host, which holds the WebGPU objects.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "gpu/recording.h"
#include "gpu/subgroup_probe.h"
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

// A write copies its bytes in the browser; more than this waits for the GPU first.
constexpr uint64_t kMaxQueuedBytes = 32u << 20;

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

void require_timestamps(const Device& device) {
  if (device.capabilities().timestamps) return;
  fail({.code = ErrorCode::kUnsupported, .what = "this device has no timestamp queries", .where = device.info().name});
}

std::vector<double> timed(Recording& recording, int times, bool each) {
  recording.flush_params();
  const std::vector<HostCommand> list = commands_of(recording);
  // At most a pass a command; each has a begin and an end.
  std::vector<double> clock(2 * list.size() * static_cast<size_t>(times));
  const uint32_t pairs = host_gpu_time(list.data(), static_cast<uint32_t>(list.size()), static_cast<uint32_t>(times),
                                       each, clock.data(), static_cast<uint32_t>(clock.size() / 2));
  clock.resize(2 * size_t{pairs});
  return clock;
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
  const Limits& limits = capabilities().limits;
  bytes = (std::max<uint64_t>(bytes, 16) + 15) / 16 * 16;
  if (bytes > limits.max_buffer_bytes) {
    fail({.code = ErrorCode::kMemory,
          .what = "a buffer is larger than this device allows",
          .where = label,
          .expected = fmt::format("up to {} bytes", limits.max_buffer_bytes),
          .got = fmt::format("{}", bytes),
          .todo = "Use a smaller context or a smaller model"});
  }
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
  if (offset % 4 != 0 || bytes.size() % 4 != 0 || offset > buffer.size() || bytes.size() > buffer.size() - offset) {
    fail({.code = ErrorCode::kInternal,
          .what = "a write leaves its buffer or its alignment",
          .where = buffer.label(),
          .expected = fmt::format("within {} bytes", buffer.size()),
          .got = fmt::format("{} bytes at {}", bytes.size(), offset)});
  }
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min<size_t>(bytes.size(), kMaxQueuedBytes));
    if (state_->queued_write_bytes + piece.size() > kMaxQueuedBytes) wait();
    host_gpu_write(buffer.state().handle, static_cast<double>(offset), piece.data(),
                   static_cast<uint32_t>(piece.size()));
    state_->queued_write_bytes += piece.size();
    offset += piece.size();
    bytes = bytes.subspan(piece.size());
  }
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
  for (const ComposedSource::Part& part : composed.parts) about["parts"].push_back({part.first_line, part.file});
  const std::string text = about.dump();
  auto kernel = std::make_shared<KernelState>();
  kernel->source = &source;
  kernel->variant = variant.name();
  kernel->handle = host_gpu_kernel(text.data(), length(text), composed.text.data(), length(composed.text));
  return state_->kernels[key] = Kernel(std::move(kernel));
}

BindGroup Device::create_bind_group(const std::string& label, const Kernel& kernel,
                                    std::span<const BoundBuffer> buffers) {
  const KernelSource& source = kernel.source();
  if (buffers.size() != source.bindings.size()) {
    fail({.code = ErrorCode::kInternal,
          .what = fmt::format("kernel {} is given a wrong number of buffers", source.name),
          .where = label,
          .expected = fmt::format("{}", source.bindings.size()),
          .got = fmt::format("{}", buffers.size())});
  }
  auto group = std::make_shared<BindGroupState>();
  std::vector<HostBinding> list;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const BoundBuffer& bound = buffers[i];
    const std::string place = fmt::format("{}: binding {} of kernel {}", label, source.bindings[i].name, source.name);
    if (!bound.buffer) fail({.code = ErrorCode::kInternal, .what = "a buffer is missing", .where = place});
    if (bound.offset > bound.buffer.size() || bound.size > bound.buffer.size() - bound.offset) {
      fail({.code = ErrorCode::kInternal,
            .what = "a bound range leaves its buffer",
            .where = place,
            .expected = fmt::format("within {} bytes", bound.buffer.size()),
            .got = fmt::format("{} at {}", bound.size, bound.offset)});
    }
    const uint64_t size = bound.size != 0 ? bound.size : bound.buffer.size() - bound.offset;
    list.push_back({source.bindings[i].binding, bound.buffer.state().handle, static_cast<double>(bound.offset),
                    static_cast<double>(size)});
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
uint64_t Device::submits() const { return state_->submits; }
uint64_t Device::dispatches() const { return state_->dispatches; }

std::vector<StepTime> Device::profile(Recording& recording) {
  require_timestamps(*this);
  std::vector<StepTime> steps;
  if (recording.dispatches() == 0) return steps;
  const std::vector<double> clock = timed(recording, 1, true);
  for (const Recording::Command& command : recording.commands()) {
    if (const auto* dispatch = std::get_if<Recording::Dispatch>(&command)) {
      const size_t i = 2 * steps.size();
      steps.push_back({dispatch->step, clock.at(i) - clock.at(0), clock.at(i + 1) - clock.at(0)});
    }
  }
  return steps;
}

double Device::time_ns(Recording& recording, int times) {
  require_timestamps(*this);
  if (recording.dispatches() == 0 || times < 1) return 0;
  const std::vector<double> clock = timed(recording, times, false);
  return clock.back() - clock.front();
}

void Device::read(const Buffer& buffer, uint64_t offset, std::span<std::byte> out) {
  if (offset % 4 != 0 || offset > buffer.size() || out.size() > buffer.size() - offset) {
    fail({.code = ErrorCode::kInternal,
          .what = "a read leaves its buffer",
          .where = buffer.label(),
          .expected = fmt::format("within {} bytes", buffer.size()),
          .got = fmt::format("{} bytes at {}", out.size(), offset)});
  }
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
