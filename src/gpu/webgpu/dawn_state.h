// What the handles of device.h hold natively. Included by device_dawn*.cpp only.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "gpu/webgpu/dawn_library.h"
#include "gpu/webgpu/device.h"

namespace doppler::gpu {

// Dawn's callbacks land here; they must not unwind through C frames, so they only take notes. Shared by the device and
// by its lost-callback, which may run after the device is gone.
struct ErrorNotes {
  std::mutex mutex;
  bool lost = false;
  std::string lost_message;
  ErrorCode code = ErrorCode::kDevice;
  std::string error;  // the first since the last check()
};

// What a callback sets, after all else that it writes.
using Done = std::atomic<bool>;

// An instance of Dawn that nobody else uses meanwhile; given back for the next one who asks. To process its events is
// to touch every device made from it, and Dawn's devices belong to one thread each: so threads must not share an
// instance.
class DawnInstance {
 public:
  DawnInstance();
  ~DawnInstance();
  DawnInstance(const DawnInstance&) = delete;
  DawnInstance& operator=(const DawnInstance&) = delete;

  WGPUInstance get() const { return instance_; }
  void process_events() const { wgpu().InstanceProcessEvents(instance_); }
  void process_until(const Done& done) const;

 private:
  WGPUInstance instance_;
};

struct DeviceState {
  const DawnInstance instance;
  const WgpuFunctions* api = nullptr;
  WGPUDevice device = nullptr;
  WGPUQueue queue = nullptr;
  AdapterInfo info;
  std::shared_ptr<ErrorNotes> notes = std::make_shared<ErrorNotes>();
  std::map<std::string, Kernel> kernels;  // by source name and variant name
  WGPUBuffer staging = nullptr;           // for read() and wait()
  uint64_t staging_bytes = 0;
  uint64_t queued_write_bytes = 0;  // since the last wait()
  uint64_t allocated_bytes = 0;
  bool measuring = false;
  HostTimes host_times;
  uint64_t submits_seen = 0;  // by the timeline, since it looked into one
  uint64_t submits = 0, dispatches = 0;

  ~DeviceState();
  void check(const std::string& where);                   // fails if the device is lost or an error was noted
  void pump(const Done& done, const std::string& where);  // until `done`, which a callback sets
};

struct BufferState {
  std::shared_ptr<DeviceState> device;
  WGPUBuffer buffer = nullptr;
  std::string label;
  uint64_t bytes = 0;
  BufferUse use = BufferUse::kStorage;
  bool mapping = false;  // kReadback: between begin_read and end_read
  Done mapped = false;   // the map has arrived
  WGPUMapAsyncStatus map_status = WGPUMapAsyncStatus_Success;
  std::string map_message;
  ~BufferState();
};

struct KernelState {
  const WgpuFunctions* api = nullptr;
  const KernelSource* source = nullptr;
  std::string variant;
  WGPUBindGroupLayout layout = nullptr;
  WGPUComputePipeline pipeline = nullptr;
  ~KernelState();
};

struct BindGroupState {
  const WgpuFunctions* api = nullptr;
  WGPUBindGroup group = nullptr;
  std::vector<Buffer> buffers;  // kept alive
  ~BindGroupState();
};

inline WGPUStringView view(std::string_view text) { return {text.data(), text.size()}; }
std::string text_of(WGPUStringView view);

// Collects the errors of the calls between its construction and pop(). Scopes nest.
class ErrorScope {
 public:
  explicit ErrorScope(DeviceState& state);
  // Waits for the verdict; fails with the first error, naming `where`. `what` is put before Dawn's words.
  void pop(const std::string& where, const std::string& what = "");
  // Instead of pop(): was there no error?
  bool pop_clean();

 private:
  DeviceState& state_;
};

}  // namespace doppler::gpu
