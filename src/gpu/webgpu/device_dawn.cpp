// Device over Dawn: buffers, kernels, bind groups. Submitting and reading are in submit_dawn.cpp.
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "base/log.h"
#include "base/timeline.h"
#include "gpu/webgpu/dawn_state.h"
#include "gpu/webgpu/device_checks.h"

namespace doppler::gpu {
namespace {
std::atomic<uint64_t> live_bytes = 0;  // of live_buffer_bytes()

struct ScopeAnswer {
  WGPUErrorType type = WGPUErrorType_NoError;
  std::string message;
};

ScopeAnswer pop_scope(DeviceState& state) {
  ScopeAnswer answer;
  Done done = false;
  WGPUPopErrorScopeCallbackInfo info = {};
  info.mode = WGPUCallbackMode_AllowProcessEvents;
  info.userdata1 = &answer;
  info.userdata2 = &done;
  info.callback = [](WGPUPopErrorScopeStatus status, WGPUErrorType type, WGPUStringView text, void* user, void* flag) {
    auto* a = static_cast<ScopeAnswer*>(user);
    if (status == WGPUPopErrorScopeStatus_Success) a->type = type;
    a->message = text_of(text);
    *static_cast<Done*>(flag) = true;
  };
  state.api->DevicePopErrorScope(state.device, info);
  state.instance.process_until(done);
  return answer;
}

std::string compile_errors(DeviceState& state, WGPUShaderModule module, const ComposedSource& source) {
  struct Answer {
    const ComposedSource* source;
    std::string text = {};
    Done done = false;
  } answer = {&source, "", false};
  WGPUCompilationInfoCallbackInfo info = {};
  info.mode = WGPUCallbackMode_AllowProcessEvents;
  info.userdata1 = &answer;
  info.callback = [](WGPUCompilationInfoRequestStatus status, const WGPUCompilationInfo* result, void* user, void*) {
    auto* a = static_cast<Answer*>(user);
    const size_t count = status == WGPUCompilationInfoRequestStatus_Success ? result->messageCount : 0;
    for (size_t i = 0; i < count; ++i) {
      const WGPUCompilationMessage& m = result->messages[i];
      if (m.type != WGPUCompilationMessageType_Error) continue;
      a->text += fmt::format("{}{}:{}: {}", a->text.empty() ? "" : "; ", a->source->locate(static_cast<int>(m.lineNum)),
                             m.linePos, text_of(m.message));
    }
    a->done = true;
  };
  state.api->ShaderModuleGetCompilationInfo(module, info);
  state.instance.process_until(answer.done);
  return answer.text;
}

WGPUBindGroupLayout create_layout(DeviceState& state, const KernelSource& source) {
  std::vector<WGPUBindGroupLayoutEntry> entries;
  for (const BindingInfo& binding : source.bindings) {
    WGPUBindGroupLayoutEntry entry = {};
    entry.binding = binding.binding;
    entry.visibility = WGPUShaderStage_Compute;
    entry.buffer.type = binding.type == BindingType::kUniform       ? WGPUBufferBindingType_Uniform
                        : binding.type == BindingType::kReadStorage ? WGPUBufferBindingType_ReadOnlyStorage
                                                                    : WGPUBufferBindingType_Storage;
    entry.buffer.minBindingSize = binding.min_bytes;
    entries.push_back(entry);
  }
  WGPUBindGroupLayoutDescriptor descriptor = {};
  descriptor.label = view(source.name);
  descriptor.entryCount = entries.size();
  descriptor.entries = entries.data();
  return state.api->DeviceCreateBindGroupLayout(state.device, &descriptor);
}

}  // namespace

DeviceState::~DeviceState() {
  kernels.clear();
  if (staging != nullptr) {
    api->BufferDestroy(staging);
    api->BufferRelease(staging);
  }
  if (queue != nullptr) api->QueueRelease(queue);
  if (device != nullptr) {
    api->DeviceDestroy(device);
    api->DeviceRelease(device);
    // The lost-callback and others still under way must not outlive what they point to.
    instance.process_events();
  }
}

void DeviceState::check(const std::string& where) {
  std::string error, lost_message;
  ErrorCode code = ErrorCode::kDevice;
  bool lost = false;
  {
    const std::lock_guard lock(notes->mutex);
    lost = notes->lost;
    lost_message = notes->lost_message;
    error.swap(notes->error);
    code = notes->code;
  }
  if (lost) {
    fail({.code = ErrorCode::kDevice,
          .what = "the GPU was lost: " + lost_message,
          .where = where,
          .todo = "load the model again"});
  }
  if (!error.empty()) fail({.code = code, .what = error, .where = where});
}

void DeviceState::pump(const Done& done, const std::string& where) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  while (true) {
    instance.process_events();
    if (done) break;
    // Latency matters for a token, so spin first; a long batch must not burn a core, so sleep later.
    const auto waited = Clock::now() - start;
    if (waited > std::chrono::milliseconds(20)) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    } else if (waited > std::chrono::microseconds(100)) {
      std::this_thread::yield();
    }
  }
  check(where);
}

BufferState::~BufferState() {
  device->allocated_bytes -= bytes;
  if (buffer == nullptr) return;
  device->api->BufferDestroy(buffer);
  // A read that nobody ended: its callback, now an abort, still points here.
  if (mapping) device->instance.process_until(mapped);
  device->api->BufferRelease(buffer);
  live_bytes -= bytes;
}

KernelState::~KernelState() {
  if (pipeline != nullptr) api->ComputePipelineRelease(pipeline);
  if (layout != nullptr) api->BindGroupLayoutRelease(layout);
}

BindGroupState::~BindGroupState() {
  if (group != nullptr) api->BindGroupRelease(group);
}

uint64_t Buffer::size() const { return state_->bytes; }
const std::string& Buffer::label() const { return state_->label; }
const KernelSource& Kernel::source() const { return *state_->source; }
const std::string& Kernel::variant() const { return state_->variant; }
const AdapterInfo& Device::info() const { return state_->info; }
uint64_t live_buffer_bytes() { return live_bytes; }

uint64_t Device::submits() const { return state_->submits; }
uint64_t Device::dispatches() const { return state_->dispatches; }
uint64_t Device::allocated_bytes() const { return state_->allocated_bytes; }
void Device::measure(bool on) { state_->measuring = on; }
bool Device::measuring() const { return state_->measuring; }

ErrorScope::ErrorScope(DeviceState& state) : state_(state) {
  state.api->DevicePushErrorScope(state.device, WGPUErrorFilter_Internal);
  state.api->DevicePushErrorScope(state.device, WGPUErrorFilter_OutOfMemory);
  state.api->DevicePushErrorScope(state.device, WGPUErrorFilter_Validation);
}

namespace {
ScopeAnswer pop_scopes(DeviceState& state) {
  ScopeAnswer first;
  for (int i = 0; i < 3; ++i) {
    ScopeAnswer answer = pop_scope(state);
    if (first.type == WGPUErrorType_NoError) first = std::move(answer);
  }
  return first;
}
}  // namespace

bool ErrorScope::pop_clean() { return pop_scopes(state_).type == WGPUErrorType_NoError; }

void ErrorScope::pop(const std::string& where, const std::string& what) {
  const ScopeAnswer first = pop_scopes(state_);
  state_.check(where);
  if (first.type == WGPUErrorType_NoError) return;
  const bool memory = first.type == WGPUErrorType_OutOfMemory;
  fail({.code = memory ? ErrorCode::kMemory : ErrorCode::kDevice,
        .what = memory ? "the GPU has not enough memory: " + first.message : what + first.message,
        .where = where,
        .todo = memory ? "use a smaller context or a more strongly quantised model" : ""});
}

Buffer Device::create_buffer(std::string label, uint64_t bytes, BufferUse use) {
  bytes = checked_buffer_bytes(capabilities().limits, label, bytes);
  auto buffer = std::make_shared<BufferState>();
  buffer->device = state_;
  buffer->label = std::move(label);
  buffer->use = use;
  if (state_->measuring) {
    buffer->bytes = bytes;
    state_->allocated_bytes += bytes;
    return Buffer(std::move(buffer));
  }
  WGPUBufferDescriptor descriptor = {};
  descriptor.label = view(buffer->label);
  descriptor.size = bytes;
  switch (use) {
    case BufferUse::kStorage:
      descriptor.usage = WGPUBufferUsage_Storage | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst;
      break;
    case BufferUse::kUniform: descriptor.usage = WGPUBufferUsage_Uniform | WGPUBufferUsage_CopyDst; break;
    case BufferUse::kReadback: descriptor.usage = WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst; break;
  }
  if (tracing(Trace::kBuffers)) trace(Trace::kBuffers, fmt::format("{:>12} bytes  {}", bytes, buffer->label));
  state_->check(buffer->label);
  ErrorScope scope(*state_);
  buffer->buffer = state_->api->DeviceCreateBuffer(state_->device, &descriptor);
  buffer->bytes = bytes;
  state_->allocated_bytes += bytes;
  live_bytes += bytes;
  scope.pop(fmt::format("buffer {} of {} bytes", buffer->label, bytes));
  return Buffer(std::move(buffer));
}

void Device::write(const Buffer& buffer, uint64_t offset, std::span<const std::byte> bytes) {
  check_write(buffer, offset, bytes.size());
  if (buffer.state().buffer == nullptr) return;  // measured
  write_throttled(
      offset, bytes, state_->queued_write_bytes, [&] { wait(); },
      [&](uint64_t at, std::span<const std::byte> piece) {
        state_->api->QueueWriteBuffer(state_->queue, buffer.state().buffer, at, piece.data(), piece.size());
      });
  state_->check(buffer.label());
}

Kernel Device::kernel(const KernelSource& source, const Variant& variant) {
  const std::string key = fmt::format("{} [{}]", source.name, variant.name());
  if (auto known = state_->kernels.find(key); known != state_->kernels.end()) return known->second;

  if (tracing(Trace::kKernels)) trace(Trace::kKernels, "compiling " + key);
  timeline::Span span;
  if (timeline::on()) span.begin("compile " + key, "load");
  const ComposedSource composed = compose(source, variant);
  const std::string where = "kernel " + key;
  state_->check(where);
  auto kernel = std::make_shared<KernelState>();
  kernel->api = state_->api;
  kernel->source = &source;
  kernel->variant = variant.name();
  const WgpuFunctions& api = *state_->api;

  WGPUShaderSourceWGSL wgsl = {};
  wgsl.chain.sType = WGPUSType_ShaderSourceWGSL;
  wgsl.code = view(composed.text);
  WGPUShaderModuleDescriptor module_descriptor = {};
  module_descriptor.nextInChain = &wgsl.chain;
  module_descriptor.label = view(key);
  ErrorScope module_scope(*state_);
  WGPUShaderModule module = api.DeviceCreateShaderModule(state_->device, &module_descriptor);
  const std::string errors = compile_errors(*state_, module, composed);
  if (!errors.empty()) {
    api.ShaderModuleRelease(module);
    for (int i = 0; i < 3; ++i) pop_scope(*state_);
    fail({.code = ErrorCode::kDevice, .what = "a kernel does not compile: " + errors, .where = where});
  }
  module_scope.pop(where);

  ErrorScope pipeline_scope(*state_);
  kernel->layout = create_layout(*state_, source);
  WGPUPipelineLayoutDescriptor layout_descriptor = {};
  layout_descriptor.label = view(key);
  layout_descriptor.bindGroupLayoutCount = 1;
  layout_descriptor.bindGroupLayouts = &kernel->layout;
  WGPUPipelineLayout pipeline_layout = api.DeviceCreatePipelineLayout(state_->device, &layout_descriptor);
  std::vector<WGPUConstantEntry> constants;
  for (const auto& [name, value] : variant.constants) constants.push_back({nullptr, view(name), value});
  WGPUComputePipelineDescriptor descriptor = {};
  descriptor.label = view(key);
  descriptor.layout = pipeline_layout;
  descriptor.compute.module = module;
  descriptor.compute.entryPoint = view("main");
  descriptor.compute.constantCount = constants.size();
  descriptor.compute.constants = constants.data();
  kernel->pipeline = api.DeviceCreateComputePipeline(state_->device, &descriptor);
  api.PipelineLayoutRelease(pipeline_layout);
  api.ShaderModuleRelease(module);
  pipeline_scope.pop(where);
  return state_->kernels[key] = Kernel(std::move(kernel));
}

BindGroup Device::create_bind_group(const std::string& label, const Kernel& kernel,
                                    std::span<const BoundBuffer> buffers) {
  const KernelSource& source = kernel.source();
  auto group = std::make_shared<BindGroupState>();
  group->api = state_->api;
  std::vector<WGPUBindGroupEntry> entries;
  for (const BoundBuffer& bound : checked_bindings(label, source, buffers)) {
    WGPUBindGroupEntry entry = {};
    entry.binding = source.bindings[entries.size()].binding;
    entry.buffer = bound.buffer.state().buffer;
    entry.offset = bound.offset;
    entry.size = bound.size;
    entries.push_back(entry);
    group->buffers.push_back(bound.buffer);
  }
  WGPUBindGroupDescriptor descriptor = {};
  descriptor.label = view(label);
  descriptor.layout = kernel.state().layout;
  descriptor.entryCount = entries.size();
  descriptor.entries = entries.data();
  group->group = state_->api->DeviceCreateBindGroup(state_->device, &descriptor);
  state_->check(label);
  return BindGroup(std::move(group));
}

void Device::lose(const std::string& message) {
  state_->api->DeviceForceLoss(state_->device, static_cast<WGPUDeviceLostReason>(1), view(message));
  state_->instance.process_events();
}

}  // namespace doppler::gpu
