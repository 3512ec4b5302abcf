// Finding adapters and opening devices with Dawn.
#include <fmt/format.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "gpu/webgpu/capabilities.h"
#include "gpu/webgpu/dawn_state.h"

namespace doppler::gpu {
namespace {

struct AdapterAnswer {
  Done done = false;
  WGPUAdapter adapter = nullptr;
  std::string message;
};

struct DeviceAnswer {
  Done done = false;
  WGPUDevice device = nullptr;
  std::string message;
};

// Dawn writes warnings of its own to the standard error when there is no driver, which is no fault where a CPU will do.
// What matters of them comes back as `why`. One thread at a time: a second one would keep, and restore, nothing.
class QuietErrors {
 public:
  QuietErrors() : lock_(mutex()), kept_(::dup(STDERR_FILENO)) {
    const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (kept_ >= 0 && nothing >= 0) ::dup2(nothing, STDERR_FILENO);
    if (nothing >= 0) ::close(nothing);
  }
  ~QuietErrors() {
    if (kept_ < 0) return;
    ::dup2(kept_, STDERR_FILENO);
    ::close(kept_);
  }
  QuietErrors(const QuietErrors&) = delete;
  QuietErrors& operator=(const QuietErrors&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  std::lock_guard<std::mutex> lock_;
  int kept_;
};

// What Dawn hides from who does not ask, of the adapter as of the device: what is no standard yet, and f16 on NVIDIA,
// which a library of before 2026 does not have.
constexpr const char* kHidden[] = {"allow_unsafe_apis", "vulkan_enable_f16_on_nvidia"};

WGPUAdapter request_adapter(const DawnInstance& instance, WGPUPowerPreference power, bool fallback,
                            std::string* message) {
  WGPURequestAdapterOptions options = {};
  options.featureLevel = WGPUFeatureLevel_Core;
  options.powerPreference = power;
  options.forceFallbackAdapter = fallback ? 1 : 0;
#ifdef __linux__
  options.backendType = WGPUBackendType_Vulkan;
#endif
  WGPUDawnTogglesDescriptor toggles = {};
  toggles.chain.sType = WGPUSType_DawnTogglesDescriptor;
  toggles.enabledToggleCount = std::size(kHidden);
  toggles.enabledToggles = kHidden;
  options.nextInChain = &toggles.chain;
  const QuietErrors quiet;
  AdapterAnswer answer;
  WGPURequestAdapterCallbackInfo info = {};
  info.mode = WGPUCallbackMode_AllowProcessEvents;
  info.userdata1 = &answer;
  info.callback = [](WGPURequestAdapterStatus status, WGPUAdapter adapter, WGPUStringView text, void* user, void*) {
    auto* a = static_cast<AdapterAnswer*>(user);
    if (status == WGPURequestAdapterStatus_Success) a->adapter = adapter;
    a->message = text_of(text);
    a->done = true;
  };
  wgpu().InstanceRequestAdapter(instance.get(), &options, info);
  instance.process_until(answer.done);
  if (message != nullptr && answer.adapter == nullptr) *message = answer.message;
  return answer.adapter;
}

const char* backend_name(WGPUBackendType type) {
  switch (type) {
    case WGPUBackendType_Null: return "Null";
    case WGPUBackendType_D3D11: return "Direct3D 11";
    case WGPUBackendType_D3D12: return "Direct3D 12";
    case WGPUBackendType_Metal: return "Metal";
    case WGPUBackendType_Vulkan: return "Vulkan";
    case WGPUBackendType_OpenGL: return "OpenGL";
    case WGPUBackendType_OpenGLES: return "OpenGL ES";
    default: return "unknown";
  }
}

const char* type_name(WGPUAdapterType type) {
  switch (type) {
    case WGPUAdapterType_DiscreteGPU: return "discrete GPU";
    case WGPUAdapterType_IntegratedGPU: return "integrated GPU";
    case WGPUAdapterType_CPU: return "software";
    default: return "unknown";
  }
}

// Room behind a struct that the library fills: its revision of it may be longer than the header's.
template <typename T>
struct Roomy {
  T value = {};
  uint32_t later[16] = {};
};

// Does the adapter multiply f16 · f16 + f32 in tiles of 16 × 16 × 16?
bool lists_f16_matrices([[maybe_unused]] WGPUAdapter adapter) {
#ifdef DOPPLER_DAWN_SDK
  const WgpuFunctions& api = wgpu();
  WGPUAdapterPropertiesSubgroupMatrixConfigs matrices = {};
  matrices.chain.sType = WGPUSType_AdapterPropertiesSubgroupMatrixConfigs;
  WGPUAdapterInfo info = {};
  info.nextInChain = &matrices.chain;
  if (api.AdapterGetInfo(adapter, &info) != WGPUStatus_Success) return false;
  const bool listed = std::any_of(matrices.configs, matrices.configs + matrices.configCount, [](const auto& m) {
    return m.componentType == WGPUSubgroupMatrixComponentType_F16 &&
           m.resultComponentType == WGPUSubgroupMatrixComponentType_F32 && m.M == 16 && m.N == 16 && m.K == 16;
  });
  api.AdapterPropertiesSubgroupMatrixConfigsFreeMembers(matrices);
  api.AdapterInfoFreeMembers(info);
  return listed;
#else
  return false;  // the Dawn that webgpu_c.h describes spells them in an older way than matmul_matrix.wgsl
#endif
}

AdapterInfo describe(const DawnInstance& instance, WGPUAdapter adapter, WGPULimits* limits_out) {
  const WgpuFunctions& api = wgpu();
  Roomy<WGPUAdapterInfo> info_room;
  Roomy<WGPULimits> limits_room;
  WGPUAdapterInfo& raw = info_room.value;
  WGPULimits& limits = limits_room.value;
  WGPUSupportedFeatures features = {};
  if (api.AdapterGetInfo(adapter, &raw) != WGPUStatus_Success ||
      api.AdapterGetLimits(adapter, &limits) != WGPUStatus_Success) {
    fail({.code = ErrorCode::kDevice, .what = "the adapter does not say what it is"});
  }
  api.AdapterGetFeatures(adapter, &features);
  auto has = [&](WGPUFeatureName name) {
    return std::find(features.features, features.features + features.featureCount, name) !=
           features.features + features.featureCount;
  };
  AdapterInfo info;
  info.name = text_of(raw.device);
  info.vendor = text_of(raw.vendor);
  info.architecture = text_of(raw.architecture);
  info.description = text_of(raw.description);
  info.backend = backend_name(raw.backendType);
  info.type = type_name(raw.adapterType);
  info.vendor_id = raw.vendorID;
  info.device_id = raw.deviceID;
  Capabilities& c = info.capabilities;
  c.limits = {.max_buffer_bytes = limits.maxBufferSize,
              .max_binding_bytes = limits.maxStorageBufferBindingSize,
              .max_uniform_bytes = limits.maxUniformBufferBindingSize,
              .storage_buffers = limits.maxStorageBuffersPerShaderStage,
              .uniform_alignment = limits.minUniformBufferOffsetAlignment,
              .storage_alignment = limits.minStorageBufferOffsetAlignment,
              .workgroup_bytes = limits.maxComputeWorkgroupStorageSize,
              .invocations = std::min(limits.maxComputeInvocationsPerWorkgroup, limits.maxComputeWorkgroupSizeX),
              .workgroups_per_dimension = limits.maxComputeWorkgroupsPerDimension};
  c.subgroups = has(WGPUFeatureName_Subgroups);
  c.subgroup_min = raw.subgroupMinSize;
  c.subgroup_max = raw.subgroupMaxSize;
  c.f16 = has(WGPUFeatureName_ShaderF16);
  c.subgroup_matrix = has(WGPUFeatureName_ChromiumExperimentalSubgroupMatrix);
  c.f16_matrices = c.f16 && c.subgroup_matrix && lists_f16_matrices(adapter);
  c.timestamps = has(WGPUFeatureName_TimestampQuery);
  c.int8_dot =
      api.InstanceHasWGSLLanguageFeature(instance.get(), WGPUWGSLLanguageFeatureName_Packed4x8IntegerDotProduct) != 0;
  c.int8_emulated = info.backend == "Metal";
  c.software = raw.adapterType == WGPUAdapterType_CPU;
  api.SupportedFeaturesFreeMembers(features);
  api.AdapterInfoFreeMembers(raw);
  check_capabilities(c, info.name);
  if (limits_out != nullptr) *limits_out = limits;
  return info;
}

struct Found {
  WGPUAdapter adapter;
  AdapterInfo info;
  WGPULimits limits;
};

// WebGPU answers one adapter a question; asking in three ways finds the distinct ones a user may want.
std::vector<Found> find_adapters(const DawnInstance& instance, std::string* why) {
  std::vector<Found> found;
  const std::pair<WGPUPowerPreference, bool> questions[] = {{WGPUPowerPreference_HighPerformance, false},
                                                            {WGPUPowerPreference_LowPower, false},
                                                            {WGPUPowerPreference_Undefined, true}};
  for (const auto& [power, fallback] : questions) {
    WGPUAdapter adapter = request_adapter(instance, power, fallback, why);
    if (adapter == nullptr) continue;
    Found candidate = {adapter, {}, {}};
    candidate.info = describe(instance, adapter, &candidate.limits);
    const bool known = std::any_of(found.begin(), found.end(), [&](const Found& f) {
      return f.info.vendor_id == candidate.info.vendor_id && f.info.device_id == candidate.info.device_id &&
             f.info.name == candidate.info.name && f.info.backend == candidate.info.backend;
    });
    if (known) {
      wgpu().AdapterRelease(adapter);
    } else {
      found.push_back(std::move(candidate));
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return !a.info.capabilities.software && b.info.capabilities.software;
  });
  return found;
}

void release(const std::vector<Found>& found) {
  for (const Found& f : found) wgpu().AdapterRelease(f.adapter);
}

[[noreturn]] void fail_without_adapter(const std::string& why) {
  fail({.code = ErrorCode::kDevice,
        .what = "no WebGPU adapter was found",
        .where = why,
        .todo = "install a Vulkan driver (and libvulkan1), point VK_ICD_FILENAMES at one, or use --backend cpu"});
}

void note(ErrorNotes& notes, WGPUErrorType type, WGPUStringView message) {
  const std::lock_guard lock(notes.mutex);
  if (!notes.error.empty()) return;
  notes.code = type == WGPUErrorType_OutOfMemory ? ErrorCode::kMemory : ErrorCode::kDevice;
  notes.error = text_of(message);
  if (notes.error.empty()) notes.error = "the driver gives no reason";
}

WGPUDevice open_device(const DeviceState& state, const Found& chosen, const DeviceOptions& options) {
  const std::shared_ptr<ErrorNotes>& notes = state.notes;
  const Capabilities& c = chosen.info.capabilities;
  std::vector<WGPUFeatureName> features;
  if (c.timestamps) features.push_back(WGPUFeatureName_TimestampQuery);
  if (c.f16) features.push_back(WGPUFeatureName_ShaderF16);
  if (c.subgroups) features.push_back(WGPUFeatureName_Subgroups);
  if (c.subgroup_matrix) features.push_back(WGPUFeatureName_ChromiumExperimentalSubgroupMatrix);

  std::vector<const char*> enabled(std::begin(kHidden), std::end(kHidden));
  if (options.unchecked) enabled.insert(enabled.end(), {"disable_robustness", "disable_workgroup_init"});
  // Zeroing workgroup memory through the extension makes software Vulkan compile a pipeline many times slower than
  // zeroing it in the shader.
  const char* disabled[] = {"timestamp_quantization", "use_vulkan_zero_initialize_workgroup_memory_extension"};
  WGPUDawnTogglesDescriptor toggles = {};
  toggles.chain.sType = WGPUSType_DawnTogglesDescriptor;
  toggles.enabledToggleCount = enabled.size();
  toggles.enabledToggles = enabled.data();
  toggles.disabledToggleCount = std::size(disabled);
  toggles.disabledToggles = disabled;

  WGPULimits limits = chosen.limits;
  limits.nextInChain = nullptr;
  WGPUDeviceDescriptor descriptor = {};
  descriptor.nextInChain = &toggles.chain;
  descriptor.label = view("doppler");
  descriptor.requiredFeatureCount = features.size();
  descriptor.requiredFeatures = features.data();
  descriptor.requiredLimits = &limits;
  descriptor.deviceLostCallbackInfo.mode = WGPUCallbackMode_AllowSpontaneous;
  descriptor.deviceLostCallbackInfo.userdata1 = new std::shared_ptr<ErrorNotes>(notes);
  descriptor.deviceLostCallbackInfo.callback = [](const WGPUDevice*, WGPUDeviceLostReason, WGPUStringView message,
                                                  void* user, void*) {
    auto* shared = static_cast<std::shared_ptr<ErrorNotes>*>(user);  // called exactly once a device
    {
      const std::lock_guard lock((*shared)->mutex);
      (*shared)->lost = true;
      (*shared)->lost_message = text_of(message);
    }
    delete shared;
  };
  descriptor.uncapturedErrorCallbackInfo.userdata1 = notes.get();
  descriptor.uncapturedErrorCallbackInfo.callback = [](const WGPUDevice*, WGPUErrorType type, WGPUStringView message,
                                                       void* user,
                                                       void*) { note(*static_cast<ErrorNotes*>(user), type, message); };

  DeviceAnswer answer;
  WGPURequestDeviceCallbackInfo info = {};
  info.mode = WGPUCallbackMode_AllowProcessEvents;
  info.userdata1 = &answer;
  info.callback = [](WGPURequestDeviceStatus status, WGPUDevice device, WGPUStringView text, void* user, void*) {
    auto* a = static_cast<DeviceAnswer*>(user);
    if (status == WGPURequestDeviceStatus_Success) a->device = device;
    a->message = text_of(text);
    a->done = true;
  };
  wgpu().AdapterRequestDevice(chosen.adapter, &descriptor, info);
  state.instance.process_until(answer.done);
  if (answer.device == nullptr) {
    fail({.code = ErrorCode::kDevice,
          .what = "the GPU could not be opened: " + answer.message,
          .where = chosen.info.name});
  }
  return answer.device;
}

// Features go by number, and revisions of webgpu.h count them differently. A library that is not of this header's
// revision would open the device with other features than were asked for: each is used once, so that it says so here.
void check_features(DeviceState& state) {
  const WgpuFunctions& api = *state.api;
  const Capabilities& c = state.info.capabilities;
  std::string code;
  if (c.f16) code += "enable f16;";
  if (c.subgroups) code += "enable subgroups;";
  if (c.subgroup_matrix) code += "enable chromium_experimental_subgroup_matrix;";
  WGPUShaderSourceWGSL source = {};
  source.chain.sType = WGPUSType_ShaderSourceWGSL;
  source.code = view(code);
  WGPUShaderModuleDescriptor shader = {};
  shader.nextInChain = &source.chain;
  WGPUQuerySetDescriptor queries = {};
  queries.type = WGPUQueryType_Timestamp;
  queries.count = 2;
  ErrorScope scope(state);
  if (WGPUShaderModule module = api.DeviceCreateShaderModule(state.device, &shader)) api.ShaderModuleRelease(module);
  if (c.timestamps) {
    if (WGPUQuerySet set = api.DeviceCreateQuerySet(state.device, &queries)) api.QuerySetRelease(set);
  }
  scope.pop(state.info.name,
            "this WebGPU library is not the build that Doppler was compiled for (tools/setup.sh fetches that; "
            "DAWN_SDK in cmake/gpu.cmake names another): it does not have the features that it lists. ");
}

// How WGSL spells subgroup matrices has changed and may change again, so the compiler is asked, as in
// web/lib/host_gpu.js.
bool compiles_f16_matrices(DeviceState& state) {
  WGPUShaderSourceWGSL source = {};
  source.chain.sType = WGPUSType_ShaderSourceWGSL;
  source.code = view(R"(enable f16;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
var<workgroup> tile: array<vec4<u32>, 64>;
@compute @workgroup_size(32) fn main() {
  let l = subgroupMatrixLoad<subgroup_matrix_left<f16, 16, 16>, row_major>(&tile, 0u, 2u);
  let r = subgroupMatrixLoad<subgroup_matrix_right<f16, 16, 16>, col_major>(&tile, 0u, 2u);
  var sum: subgroup_matrix_result<f32, 16, 16>;
  sum = subgroupMatrixMultiplyAccumulate(l, r, sum);
  subgroupMatrixStore<row_major>(&tile, 0u, sum, 4u);
})");
  WGPUShaderModuleDescriptor shader = {};
  shader.nextInChain = &source.chain;
  ErrorScope scope(state);
  if (WGPUShaderModule module = state.api->DeviceCreateShaderModule(state.device, &shader))
    state.api->ShaderModuleRelease(module);
  return scope.pop_clean();
}

// NVIDIA's driver on a machine without an X server (a server, a container) often has no manifest that Vulkan's loader
// can use: its own names libGLX_nvidia, which needs one. The same driver is in libEGL_nvidia, which does not; the
// loader is told of it by a manifest that exists as long as this program runs.
class HeadlessNvidiaDriver {
 public:
  HeadlessNvidiaDriver() {
    for (const char* name : {"VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES"}) {
      if (std::getenv(name) != nullptr) return;  // a person has chosen
    }
    if (void* driver = ::dlopen("libEGL_nvidia.so.0", RTLD_LAZY | RTLD_LOCAL)) {
      ::dlclose(driver);
      const int file = ::mkstemps(path_, 5);
      if (file < 0) return;
      constexpr std::string_view manifest =
          R"({"file_format_version": "1.0.0", "ICD": {"library_path": "libEGL_nvidia.so.0", "api_version": "1.3.0"}})";
      written_ = ::write(file, manifest.data(), manifest.size()) == static_cast<ssize_t>(manifest.size());
      ::close(file);
      if (written_) ::setenv("VK_ADD_DRIVER_FILES", path_, 0);
    }
  }
  ~HeadlessNvidiaDriver() {
    if (written_) ::unlink(path_);
  }

 private:
  char path_[40] = "/tmp/doppler-nvidia-XXXXXX.json";
  bool written_ = false;
};

// Kept to the end of the program, since its threads may outlive everything else.
struct IdleInstances {
  std::mutex mutex;
  std::vector<WGPUInstance> instances;
};
IdleInstances& idle_instances() {
  static IdleInstances& idle = *new IdleInstances;
  return idle;
}

}  // namespace

DawnInstance::DawnInstance() {
  static const HeadlessNvidiaDriver nvidia;
  IdleInstances& idle = idle_instances();
  const std::lock_guard lock(idle.mutex);
  if (!idle.instances.empty()) {
    instance_ = idle.instances.back();
    idle.instances.pop_back();
    return;
  }
  WGPUDawnTogglesDescriptor toggles = {};
  toggles.chain.sType = WGPUSType_DawnTogglesDescriptor;
  toggles.enabledToggleCount = std::size(kHidden);
  toggles.enabledToggles = kHidden;
  WGPUInstanceDescriptor descriptor = {};
  descriptor.nextInChain = &toggles.chain;
  instance_ = wgpu().CreateInstance(&descriptor);
  if (instance_ == nullptr) fail({.code = ErrorCode::kDevice, .what = "Dawn could not be started"});
}

DawnInstance::~DawnInstance() {
  IdleInstances& idle = idle_instances();
  const std::lock_guard lock(idle.mutex);
  idle.instances.push_back(instance_);
}

void DawnInstance::process_until(const Done& done) const {
  while (!done) {
    process_events();
    if (!done) std::this_thread::yield();
  }
}

std::string text_of(WGPUStringView text) {
  if (text.data == nullptr) return "";
  return text.length == SIZE_MAX ? std::string(text.data) : std::string(text.data, text.length);
}

std::vector<AdapterInfo> list_adapters() {
  const DawnInstance instance;
  std::string why;
  const std::vector<Found> found = find_adapters(instance, &why);
  if (found.empty()) fail_without_adapter(why);
  std::vector<AdapterInfo> infos;
  for (const Found& f : found) infos.push_back(f.info);
  release(found);
  return infos;
}

bool webgpu_library_found(std::string* why) { return find_wgpu(why) != nullptr; }

std::string webgpu_library_path() { return wgpu_path(); }

bool webgpu_available(std::string* why) {
  if (find_wgpu(why) == nullptr) return false;
  const DawnInstance instance;
  std::string message;
  WGPUAdapter adapter = request_adapter(instance, WGPUPowerPreference_HighPerformance, false, &message);
  if (adapter == nullptr) adapter = request_adapter(instance, WGPUPowerPreference_Undefined, true, &message);
  if (adapter == nullptr) {
    if (why != nullptr) *why = message;
    return false;
  }
  wgpu().AdapterRelease(adapter);
  return true;
}

Device::Device(const DeviceOptions& options) : state_(std::make_shared<DeviceState>()) {
  state_->api = &wgpu();
  std::string why;
  const std::vector<Found> found = find_adapters(state_->instance, &why);
  if (found.empty()) fail_without_adapter(why);
  const int index = options.adapter < 0 ? 0 : options.adapter;
  if (index >= static_cast<int>(found.size())) {
    release(found);
    fail({.code = ErrorCode::kUsage,
          .what = "there is no such GPU",
          .where = "--device",
          .expected = fmt::format("0 to {}", found.size() - 1),
          .got = fmt::format("{}", options.adapter),
          .todo = "`doppler devices` lists them"});
  }
  Found chosen = found[static_cast<size_t>(index)];
  if (options.plain) {
    Capabilities& c = chosen.info.capabilities;
    c.subgroups = c.f16 = c.subgroup_matrix = c.f16_matrices = c.int8_dot = false;
  }
  state_->info = chosen.info;
  state_->device = open_device(*state_, chosen, options);
  release(found);
  state_->queue = state_->api->DeviceGetQueue(state_->device);
  check_features(*state_);
  Capabilities& capabilities = state_->info.capabilities;
  if (capabilities.f16_matrices) capabilities.f16_matrices = compiles_f16_matrices(*state_);
  if (capabilities.subgroups) {
    capabilities.subgroup_size = probe_subgroup_size(*this);
    capabilities.subgroups = capabilities.subgroup_size != 0;
  }
  capabilities.kernels = options.kernels;
  if (options.believed) options.believed(capabilities);
}

Device::~Device() = default;

}  // namespace doppler::gpu
