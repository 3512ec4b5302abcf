// Device over Dawn: encoding and submitting recordings, timestamps, reading back.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>

#include "base/timeline.h"
#include "gpu/webgpu/dawn_state.h"
#include "gpu/webgpu/device_checks.h"

namespace doppler::gpu {
namespace {

constexpr uint64_t kStagingBytes = 1u << 20, kMaxStagingBytes = 32u << 20;
constexpr size_t kFirstPart = 16, kPart = 64;  // commands of a submit, where the GPU waits for the first
constexpr uint32_t kQueriesPerSet = 4096;      // WebGPU's limit
// Of so many submits of a whole program the timeline looks into one: with a pass and two clocks for every dispatch, and
// waited for, it takes two or three times as long as others, which makes 3 to 6 percent of all.
constexpr uint64_t kTimelineEvery = 32;
constexpr size_t kWholeProgram = 8;  // dispatches; less is a copy or a choice

struct MapAnswer {
  Done done = false;
  WGPUMapAsyncStatus status = WGPUMapAsyncStatus_Success;
  std::string message;
};

// Timestamps around each compute pass of an encoding.
struct PassTimer {
  DeviceState& state;
  std::vector<WGPUQuerySet> sets = {};
  uint32_t passes = 0;

  ~PassTimer() {
    for (WGPUQuerySet set : sets) {
      state.api->QuerySetDestroy(set);
      state.api->QuerySetRelease(set);
    }
  }
  WGPUPassTimestampWrites next() {
    const uint32_t index = passes++ * 2 % kQueriesPerSet;
    if (index == 0) {
      WGPUQuerySetDescriptor descriptor = {};
      descriptor.type = WGPUQueryType_Timestamp;
      descriptor.count = kQueriesPerSet;
      sets.push_back(state.api->DeviceCreateQuerySet(state.device, &descriptor));
    }
    WGPUPassTimestampWrites writes = {};
    writes.querySet = sets.back();
    writes.beginningOfPassWriteIndex = index;
    writes.endOfPassWriteIndex = index + 1;
    return writes;
  }
};

class Encoding {
 public:
  Encoding(DeviceState& state, const std::string& label) : state_(state), api_(*state.api) {
    WGPUCommandEncoderDescriptor descriptor = {};
    descriptor.label = view(label);
    encoder_ = api_.DeviceCreateCommandEncoder(state.device, &descriptor);
  }
  ~Encoding() {
    end_pass();
    api_.CommandEncoderRelease(encoder_);
  }
  WGPUCommandEncoder encoder() const { return encoder_; }

  void add(std::span<const Recording::Command> commands, PassTimer* timer, bool pass_per_dispatch) {
    for (const Recording::Command& command : commands) {
      if (const auto* dispatch = std::get_if<Recording::Dispatch>(&command)) {
        if (pass_per_dispatch) end_pass();
        if (pass_ == nullptr) begin_pass(timer);
        const WGPUComputePipeline pipeline = dispatch->kernel.state().pipeline;
        if (pipeline != pipeline_) api_.ComputePassEncoderSetPipeline(pass_, pipeline);
        pipeline_ = pipeline;
        api_.ComputePassEncoderSetBindGroup(pass_, 0, dispatch->bind_group.state().group, 0, nullptr);
        api_.ComputePassEncoderDispatchWorkgroups(pass_, dispatch->grid.x, dispatch->grid.y, dispatch->grid.z);
        continue;
      }
      const auto& copy = std::get<Recording::Copy>(command);
      end_pass();
      const WGPUBuffer to = copy.to.state().buffer;
      if (copy.from) {
        api_.CommandEncoderCopyBufferToBuffer(encoder_, copy.from.state().buffer, copy.from_offset, to, copy.to_offset,
                                              copy.bytes);
      } else {
        api_.CommandEncoderClearBuffer(encoder_, to, copy.to_offset, copy.bytes);
      }
    }
  }

  void submit() {
    end_pass();
    WGPUCommandBuffer commands = api_.CommandEncoderFinish(encoder_, nullptr);
    api_.QueueSubmit(state_.queue, 1, &commands);
    api_.CommandBufferRelease(commands);
  }

  void end_pass() {
    if (pass_ == nullptr) return;
    api_.ComputePassEncoderEnd(pass_);
    api_.ComputePassEncoderRelease(pass_);
    pass_ = nullptr;
    pipeline_ = nullptr;
  }

 private:
  void begin_pass(PassTimer* timer) {
    WGPUComputePassDescriptor descriptor = {};
    WGPUPassTimestampWrites writes = {};
    if (timer != nullptr) {
      writes = timer->next();
      descriptor.timestampWrites = &writes;
    }
    pass_ = api_.CommandEncoderBeginComputePass(encoder_, &descriptor);
  }

  DeviceState& state_;
  const WgpuFunctions& api_;
  WGPUCommandEncoder encoder_;
  WGPUComputePassEncoder pass_ = nullptr;
  WGPUComputePipeline pipeline_ = nullptr;
};

void map_and_copy(DeviceState& state, WGPUBuffer buffer, std::span<std::byte> out, const std::string& where) {
  MapAnswer answer;
  WGPUBufferMapCallbackInfo info = {};
  info.mode = WGPUCallbackMode_AllowProcessEvents;
  info.userdata1 = &answer;
  info.callback = [](WGPUMapAsyncStatus status, WGPUStringView text, void* user, void*) {
    auto* a = static_cast<MapAnswer*>(user);
    a->status = status;
    a->message = text_of(text);
    a->done = true;
  };
  const size_t bytes = (out.size() + 3) / 4 * 4;
  state.api->BufferMapAsync(buffer, WGPUMapMode_Read, 0, bytes, info);
  state.pump(answer.done, where);
  if (answer.status != WGPUMapAsyncStatus_Success) {
    fail({.code = ErrorCode::kDevice, .what = "the GPU's answer could not be read: " + answer.message, .where = where});
  }
  const void* mapped = state.api->BufferGetConstMappedRange(buffer, 0, bytes);
  if (mapped == nullptr) fail({.code = ErrorCode::kDevice, .what = "the GPU's answer is not mapped", .where = where});
  std::memcpy(out.data(), mapped, out.size());
  state.api->BufferUnmap(buffer);
}

// Room for what is read, up to a bound: a large read in few pieces.
WGPUBuffer staging(DeviceState& state, uint64_t bytes) {
  const uint64_t wanted = std::clamp(std::bit_ceil(bytes), kStagingBytes, kMaxStagingBytes);
  if (state.staging == nullptr || state.staging_bytes < wanted) {
    if (state.staging != nullptr) {
      state.api->BufferDestroy(state.staging);
      state.api->BufferRelease(state.staging);
    }
    WGPUBufferDescriptor descriptor = {};
    descriptor.label = view("staging");
    descriptor.usage = WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst;
    descriptor.size = wanted;
    state.staging = state.api->DeviceCreateBuffer(state.device, &descriptor);
    state.staging_bytes = wanted;
    state.check("staging buffer");
  }
  return state.staging;
}

// [begin, end] of every pass, in nanoseconds.
std::vector<std::pair<double, double>> read_timestamps(DeviceState& state, Encoding& encoding, const PassTimer& timer,
                                                       const std::string& where) {
  const uint64_t bytes = uint64_t{timer.sets.size()} * kQueriesPerSet * 8;
  WGPUBufferDescriptor descriptor = {};
  descriptor.label = view("timestamps");
  descriptor.usage = WGPUBufferUsage_QueryResolve | WGPUBufferUsage_CopySrc;
  descriptor.size = bytes;
  WGPUBuffer resolved = state.api->DeviceCreateBuffer(state.device, &descriptor);
  descriptor.usage = WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst;
  WGPUBuffer readable = state.api->DeviceCreateBuffer(state.device, &descriptor);
  encoding.end_pass();
  for (size_t i = 0; i < timer.sets.size(); ++i) {
    const uint32_t count =
        std::min<uint32_t>(timer.passes * 2 - static_cast<uint32_t>(i) * kQueriesPerSet, kQueriesPerSet);
    state.api->CommandEncoderResolveQuerySet(encoding.encoder(), timer.sets[i], 0, count, resolved,
                                             i * kQueriesPerSet * 8);
  }
  state.api->CommandEncoderCopyBufferToBuffer(encoding.encoder(), resolved, 0, readable, 0, bytes);
  encoding.submit();
  std::vector<uint64_t> raw(timer.sets.size() * kQueriesPerSet);
  map_and_copy(state, readable, std::as_writable_bytes(std::span(raw)), where);
  for (WGPUBuffer buffer : {resolved, readable}) {
    state.api->BufferDestroy(buffer);
    state.api->BufferRelease(buffer);
  }
  std::vector<std::pair<double, double>> times;
  for (uint32_t i = 0; i < timer.passes; ++i) {
    times.emplace_back(static_cast<double>(raw[2 * i] - raw[0]), static_cast<double>(raw[2 * i + 1] - raw[0]));
  }
  return times;
}

// Once, with the times of its dispatches on the timeline. The GPU's clock is not the host's: the last one ends when the
// host has read that it did.
void submit_timed(DeviceState& state, Recording& recording) {
  recording.flush_params();
  PassTimer timer{state};
  Encoding encoding(state, recording.label());
  encoding.add(recording.commands(), &timer, true);
  const std::vector<StepTime> steps = step_times(recording, read_timestamps(state, encoding, timer, recording.label()));
  ++state.submits;
  state.dispatches += recording.dispatches();
  state.check(recording.label());
  const double end = static_cast<double>(timeline::now()), length = steps.back().end_ns;
  const auto at = [&](double ns) { return static_cast<uint64_t>(std::max(0.0, end - length + ns)); };
  size_t i = 0;
  for (const Recording::Command& command : recording.commands()) {
    const auto* dispatch = std::get_if<Recording::Dispatch>(&command);
    if (dispatch == nullptr) continue;
    const std::string arguments =
        fmt::format(R"({{"kernel":"{}","variant":"{}","workgroups":[{},{},{}]}})", dispatch->kernel.source().name,
                    dispatch->kernel.variant(), dispatch->grid.x, dispatch->grid.y, dispatch->grid.z);
    timeline::add(timeline::event(steps[i].step, "dispatch", timeline::Track::kGpu, arguments), at(steps[i].begin_ns),
                  at(steps[i].end_ns));
    ++i;
  }
}

bool wants_times(DeviceState& state, const Recording& recording) {
  return timeline::on() && state.info.capabilities.timestamps && recording.dispatches() >= kWholeProgram &&
         state.submits_seen++ % kTimelineEvery == 0;
}

}  // namespace

void Device::submit(Recording& recording, int times) {
  if (wants_times(*state_, recording)) {
    submit_timed(*state_, recording);
    if (--times == 0) return;
  }
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  recording.flush_params();
  Encoding encoding(*state_, recording.label());
  for (int i = 0; i < times; ++i) encoding.add(recording.commands(), nullptr, false);
  const auto encoded = Clock::now();
  encoding.submit();
  ++state_->submits;
  state_->dispatches += static_cast<uint64_t>(times) * recording.dispatches();
  state_->check(recording.label());
  state_->host_times.encode_ns += std::chrono::duration<double, std::nano>(encoded - start).count();
  state_->host_times.submit_ns += std::chrono::duration<double, std::nano>(Clock::now() - encoded).count();
}

void Device::submit_in_parts(Recording& recording) {
  if (wants_times(*state_, recording)) return submit_timed(*state_, recording);
  recording.flush_params();
  const std::span<const Recording::Command> commands(recording.commands());
  for (size_t from = 0, size = kFirstPart; from < commands.size(); from += size, size = kPart) {
    Encoding encoding(*state_, recording.label());
    encoding.add(commands.subspan(from, std::min(size, commands.size() - from)), nullptr, false);
    encoding.submit();
    ++state_->submits;
  }
  state_->dispatches += recording.dispatches();
  state_->check(recording.label());
}

HostTimes Device::host_times() const { return state_->host_times; }

std::vector<StepTime> Device::profile(Recording& recording) {
  require_timestamps(*this);
  recording.flush_params();
  if (recording.dispatches() == 0) return {};
  PassTimer timer{*state_};
  Encoding encoding(*state_, recording.label());
  encoding.add(recording.commands(), &timer, true);
  return step_times(recording, read_timestamps(*state_, encoding, timer, recording.label()));
}

double Device::time_ns(Recording& recording, int times) {
  require_timestamps(*this);
  if (recording.dispatches() == 0 || times < 1) return 0;
  recording.flush_params();
  PassTimer timer{*state_};
  Encoding encoding(*state_, recording.label());
  for (int i = 0; i < times; ++i) encoding.add(recording.commands(), &timer, false);
  const auto passes = read_timestamps(*state_, encoding, timer, recording.label());
  return passes.back().second - passes.front().first;
}

void Device::read(const Buffer& buffer, uint64_t offset, std::span<std::byte> out) {
  check_read(buffer, offset, out.size());
  WGPUBuffer target = staging(*state_, out.size());
  while (!out.empty()) {
    const std::span<std::byte> piece = out.first(std::min<size_t>(out.size(), state_->staging_bytes));
    Encoding encoding(*state_, buffer.label());
    state_->api->CommandEncoderCopyBufferToBuffer(encoding.encoder(), buffer.state().buffer, offset, target, 0,
                                                  (piece.size() + 3) / 4 * 4);
    encoding.submit();
    map_and_copy(*state_, target, piece, buffer.label());
    offset += piece.size();
    out = out.subspan(piece.size());
  }
  state_->queued_write_bytes = 0;
}

void Device::begin_read(const Buffer& readback) {
  BufferState& buffer = readback.state();
  if (buffer.use != BufferUse::kReadback || buffer.mapping) {
    fail({.code = ErrorCode::kInternal, .what = "begin_read needs an idle readback buffer", .where = buffer.label});
  }
  buffer.mapping = true;
  buffer.mapped = false;
  WGPUBufferMapCallbackInfo info = {};
  info.mode = WGPUCallbackMode_AllowProcessEvents;
  info.userdata1 = &buffer;
  info.callback = [](WGPUMapAsyncStatus status, WGPUStringView text, void* user, void*) {
    auto* b = static_cast<BufferState*>(user);
    b->map_status = status;
    b->map_message = text_of(text);
    b->mapped = true;
  };
  state_->api->BufferMapAsync(buffer.buffer, WGPUMapMode_Read, 0, buffer.bytes, info);
}

void Device::end_read(const Buffer& readback, uint64_t bytes,
                      const std::function<void(std::span<const std::byte>)>& see) {
  BufferState& buffer = readback.state();
  if (!buffer.mapping || bytes > buffer.bytes) {
    fail({.code = ErrorCode::kInternal, .what = "end_read without begin_read, or of too much", .where = buffer.label});
  }
  state_->pump(buffer.mapped, buffer.label);
  buffer.mapping = false;
  if (buffer.map_status != WGPUMapAsyncStatus_Success) {
    fail({.code = ErrorCode::kDevice,
          .what = "the GPU's answer could not be read: " + buffer.map_message,
          .where = buffer.label});
  }
  // Who looks may stop the run there and then; the buffer must be given back all the same.
  struct Unmap {
    BufferState& buffer;
    ~Unmap() { buffer.device->api->BufferUnmap(buffer.buffer); }
  } const unmap{buffer};
  const void* mapped = state_->api->BufferGetConstMappedRange(buffer.buffer, 0, buffer.bytes);
  if (mapped == nullptr)
    fail({.code = ErrorCode::kDevice, .what = "the GPU's answer is not mapped", .where = buffer.label});
  see({static_cast<const std::byte*>(mapped), static_cast<size_t>(bytes)});
}

void Device::wait() {
  // Mapping resolves when the last submit that touched the buffer is done; clearing it makes that the newest submit.
  WGPUBuffer target = staging(*state_, 4);
  Encoding encoding(*state_, "wait");
  state_->api->CommandEncoderClearBuffer(encoding.encoder(), target, 0, 4);
  encoding.submit();
  std::byte ignored[4];
  map_and_copy(*state_, target, ignored, "wait");
  state_->queued_write_bytes = 0;
}

}  // namespace doppler::gpu
