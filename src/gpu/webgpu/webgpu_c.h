// The part of WebGPU's C interface that Doppler uses, with the numbers of the Dawn build that tools/setup.sh
// installs. Names and layouts are those of the public webgpu.h, so that a full SDK's header can stand in for this one
// (-DDAWN_SDK=... defines DOPPLER_DAWN_SDK). Members we never set are kept as plain words to preserve the layout.
// Typed by hand, because no package carries the header of that library's revision: bun-webgpu and
// bun-webgpu-linux-x64 hold the library and TypeScript declarations, Debian has no Dawn.
#pragma once

#ifdef DOPPLER_DAWN_SDK
#include <webgpu/webgpu.h>
#else

#include <cstddef>
#include <cstdint>

extern "C" {

#define DOPPLER_WGPU_HANDLE(name) typedef struct name##Impl* name
DOPPLER_WGPU_HANDLE(WGPUAdapter);
DOPPLER_WGPU_HANDLE(WGPUBindGroup);
DOPPLER_WGPU_HANDLE(WGPUBindGroupLayout);
DOPPLER_WGPU_HANDLE(WGPUBuffer);
DOPPLER_WGPU_HANDLE(WGPUCommandBuffer);
DOPPLER_WGPU_HANDLE(WGPUCommandEncoder);
DOPPLER_WGPU_HANDLE(WGPUComputePassEncoder);
DOPPLER_WGPU_HANDLE(WGPUComputePipeline);
DOPPLER_WGPU_HANDLE(WGPUDevice);
DOPPLER_WGPU_HANDLE(WGPUInstance);
DOPPLER_WGPU_HANDLE(WGPUPipelineLayout);
DOPPLER_WGPU_HANDLE(WGPUQuerySet);
DOPPLER_WGPU_HANDLE(WGPUQueue);
DOPPLER_WGPU_HANDLE(WGPUShaderModule);
#undef DOPPLER_WGPU_HANDLE

typedef uint32_t WGPUBool;
typedef uint64_t WGPUFlags;

typedef enum WGPUStatus : uint32_t { WGPUStatus_Success = 1 } WGPUStatus;
typedef enum WGPUSType : uint32_t {
  WGPUSType_ShaderSourceWGSL = 2,
  WGPUSType_DawnTogglesDescriptor = 0x5000A,
  WGPUSType_AdapterPropertiesSubgroupMatrixConfigs = 0x5003B,
} WGPUSType;
typedef enum WGPUFeatureName : uint32_t {
  WGPUFeatureName_TimestampQuery = 0x3,
  WGPUFeatureName_ShaderF16 = 0xA,
  WGPUFeatureName_Subgroups = 0x11,
  WGPUFeatureName_CoreFeaturesAndLimits = 0x12,
  WGPUFeatureName_ChromiumExperimentalSubgroupMatrix = 0x50038,
} WGPUFeatureName;
typedef enum WGPUWGSLLanguageFeatureName : uint32_t {
  WGPUWGSLLanguageFeatureName_Packed4x8IntegerDotProduct = 2,
} WGPUWGSLLanguageFeatureName;
typedef enum WGPUBackendType : uint32_t {
  WGPUBackendType_Undefined = 0,
  WGPUBackendType_Null = 1,
  WGPUBackendType_D3D11 = 3,
  WGPUBackendType_D3D12 = 4,
  WGPUBackendType_Metal = 5,
  WGPUBackendType_Vulkan = 6,
  WGPUBackendType_OpenGL = 7,
  WGPUBackendType_OpenGLES = 8,
} WGPUBackendType;
typedef enum WGPUAdapterType : uint32_t {
  WGPUAdapterType_DiscreteGPU = 1,
  WGPUAdapterType_IntegratedGPU = 2,
  WGPUAdapterType_CPU = 3,
  WGPUAdapterType_Unknown = 4,
} WGPUAdapterType;
typedef enum WGPUFeatureLevel : uint32_t { WGPUFeatureLevel_Core = 2 } WGPUFeatureLevel;
typedef enum WGPUPowerPreference : uint32_t {
  WGPUPowerPreference_Undefined = 0,
  WGPUPowerPreference_LowPower = 1,
  WGPUPowerPreference_HighPerformance = 2,
} WGPUPowerPreference;
typedef enum WGPUCallbackMode : uint32_t {
  WGPUCallbackMode_AllowProcessEvents = 2,
  WGPUCallbackMode_AllowSpontaneous = 3,
} WGPUCallbackMode;
typedef enum WGPURequestAdapterStatus : uint32_t { WGPURequestAdapterStatus_Success = 1 } WGPURequestAdapterStatus;
typedef enum WGPURequestDeviceStatus : uint32_t { WGPURequestDeviceStatus_Success = 1 } WGPURequestDeviceStatus;
typedef enum WGPUMapAsyncStatus : uint32_t { WGPUMapAsyncStatus_Success = 1 } WGPUMapAsyncStatus;
typedef enum WGPUPopErrorScopeStatus : uint32_t { WGPUPopErrorScopeStatus_Success = 1 } WGPUPopErrorScopeStatus;
typedef enum WGPUCompilationInfoRequestStatus : uint32_t {
  WGPUCompilationInfoRequestStatus_Success = 1
} WGPUCompilationInfoRequestStatus;
typedef enum WGPUCompilationMessageType : uint32_t { WGPUCompilationMessageType_Error = 1 } WGPUCompilationMessageType;
typedef enum WGPUErrorType : uint32_t {
  WGPUErrorType_NoError = 1,
  WGPUErrorType_Validation = 2,
  WGPUErrorType_OutOfMemory = 3,
  WGPUErrorType_Internal = 4,
} WGPUErrorType;
typedef enum WGPUErrorFilter : uint32_t {
  WGPUErrorFilter_Validation = 1,
  WGPUErrorFilter_OutOfMemory = 2,
  WGPUErrorFilter_Internal = 3,
} WGPUErrorFilter;
typedef enum WGPUDeviceLostReason : uint32_t { WGPUDeviceLostReason_Destroyed = 2 } WGPUDeviceLostReason;
typedef enum WGPUBufferBindingType : uint32_t {
  WGPUBufferBindingType_Uniform = 2,
  WGPUBufferBindingType_Storage = 3,
  WGPUBufferBindingType_ReadOnlyStorage = 4,
} WGPUBufferBindingType;
typedef enum WGPUQueryType : uint32_t { WGPUQueryType_Timestamp = 2 } WGPUQueryType;

typedef WGPUFlags WGPUBufferUsage;
static const WGPUBufferUsage WGPUBufferUsage_MapRead = 0x1;
static const WGPUBufferUsage WGPUBufferUsage_CopySrc = 0x4;
static const WGPUBufferUsage WGPUBufferUsage_CopyDst = 0x8;
static const WGPUBufferUsage WGPUBufferUsage_Uniform = 0x40;
static const WGPUBufferUsage WGPUBufferUsage_Storage = 0x80;
static const WGPUBufferUsage WGPUBufferUsage_QueryResolve = 0x200;
typedef WGPUFlags WGPUMapMode;
static const WGPUMapMode WGPUMapMode_Read = 0x1;
typedef WGPUFlags WGPUShaderStage;
static const WGPUShaderStage WGPUShaderStage_Compute = 0x4;

typedef struct WGPUStringView {
  const char* data;
  size_t length;  // SIZE_MAX: ends at a zero byte
} WGPUStringView;
typedef struct WGPUFuture {
  uint64_t id;
} WGPUFuture;
typedef struct WGPUChainedStruct {
  struct WGPUChainedStruct* next;
  WGPUSType sType;
} WGPUChainedStruct;

typedef struct WGPULimits {
  WGPUChainedStruct* nextInChain;
  uint32_t maxTextureDimension1D, maxTextureDimension2D, maxTextureDimension3D, maxTextureArrayLayers;
  uint32_t maxBindGroups, maxBindGroupsPlusVertexBuffers, maxBindingsPerBindGroup;
  uint32_t maxDynamicUniformBuffersPerPipelineLayout, maxDynamicStorageBuffersPerPipelineLayout;
  uint32_t maxSampledTexturesPerShaderStage, maxSamplersPerShaderStage;
  uint32_t maxStorageBuffersPerShaderStage, maxStorageTexturesPerShaderStage, maxUniformBuffersPerShaderStage;
  uint64_t maxUniformBufferBindingSize, maxStorageBufferBindingSize;
  uint32_t minUniformBufferOffsetAlignment, minStorageBufferOffsetAlignment;
  uint32_t maxVertexBuffers;
  uint64_t maxBufferSize;
  uint32_t maxVertexAttributes, maxVertexBufferArrayStride, maxInterStageShaderVariables;
  uint32_t maxColorAttachments, maxColorAttachmentBytesPerSample;
  uint32_t maxComputeWorkgroupStorageSize, maxComputeInvocationsPerWorkgroup;
  uint32_t maxComputeWorkgroupSizeX, maxComputeWorkgroupSizeY, maxComputeWorkgroupSizeZ;
  uint32_t maxComputeWorkgroupsPerDimension;
  uint32_t later[16];  // members of later or earlier revisions that we do not read
} WGPULimits;

typedef struct WGPUAdapterInfo {
  WGPUChainedStruct* nextInChain;
  WGPUStringView vendor, architecture, device, description;
  WGPUBackendType backendType;
  WGPUAdapterType adapterType;
  uint32_t vendorID, deviceID, subgroupMinSize, subgroupMaxSize;
} WGPUAdapterInfo;

typedef struct WGPUSupportedFeatures {
  size_t featureCount;
  const WGPUFeatureName* features;
} WGPUSupportedFeatures;

typedef struct WGPUInstanceDescriptor {
  WGPUChainedStruct* nextInChain;
  uint64_t zero[6];  // all revisions agree that zeros ask for nothing
} WGPUInstanceDescriptor;

typedef struct WGPUDawnTogglesDescriptor {
  WGPUChainedStruct chain;
  size_t enabledToggleCount;
  const char* const* enabledToggles;
  size_t disabledToggleCount;
  const char* const* disabledToggles;
} WGPUDawnTogglesDescriptor;

typedef struct WGPURequestAdapterOptions {
  WGPUChainedStruct* nextInChain;
  WGPUFeatureLevel featureLevel;
  WGPUPowerPreference powerPreference;
  WGPUBool forceFallbackAdapter;
  WGPUBackendType backendType;
  void* compatibleSurface;
} WGPURequestAdapterOptions;

typedef void (*WGPURequestAdapterCallback)(WGPURequestAdapterStatus, WGPUAdapter, WGPUStringView, void*, void*);
typedef void (*WGPURequestDeviceCallback)(WGPURequestDeviceStatus, WGPUDevice, WGPUStringView, void*, void*);
typedef void (*WGPUBufferMapCallback)(WGPUMapAsyncStatus, WGPUStringView, void*, void*);
typedef void (*WGPUPopErrorScopeCallback)(WGPUPopErrorScopeStatus, WGPUErrorType, WGPUStringView, void*, void*);
typedef void (*WGPUDeviceLostCallback)(const WGPUDevice*, WGPUDeviceLostReason, WGPUStringView, void*, void*);
typedef void (*WGPUUncapturedErrorCallback)(const WGPUDevice*, WGPUErrorType, WGPUStringView, void*, void*);

#define DOPPLER_WGPU_CALLBACK_INFO(name) \
  typedef struct name##CallbackInfo {    \
    WGPUChainedStruct* nextInChain;      \
    WGPUCallbackMode mode;               \
    name##Callback callback;             \
    void* userdata1;                     \
    void* userdata2;                     \
  } name##CallbackInfo
DOPPLER_WGPU_CALLBACK_INFO(WGPURequestAdapter);
DOPPLER_WGPU_CALLBACK_INFO(WGPURequestDevice);
DOPPLER_WGPU_CALLBACK_INFO(WGPUBufferMap);
DOPPLER_WGPU_CALLBACK_INFO(WGPUPopErrorScope);
DOPPLER_WGPU_CALLBACK_INFO(WGPUDeviceLost);
#undef DOPPLER_WGPU_CALLBACK_INFO

typedef struct WGPUCompilationMessage {
  WGPUChainedStruct* nextInChain;
  WGPUStringView message;
  WGPUCompilationMessageType type;
  uint64_t lineNum, linePos, offset, length;
} WGPUCompilationMessage;
typedef struct WGPUCompilationInfo {
  WGPUChainedStruct* nextInChain;
  size_t messageCount;
  const WGPUCompilationMessage* messages;
} WGPUCompilationInfo;
typedef void (*WGPUCompilationInfoCallback)(WGPUCompilationInfoRequestStatus, const WGPUCompilationInfo*, void*, void*);
typedef struct WGPUCompilationInfoCallbackInfo {
  WGPUChainedStruct* nextInChain;
  WGPUCallbackMode mode;
  WGPUCompilationInfoCallback callback;
  void* userdata1;
  void* userdata2;
} WGPUCompilationInfoCallbackInfo;

typedef struct WGPUUncapturedErrorCallbackInfo {
  WGPUChainedStruct* nextInChain;
  WGPUUncapturedErrorCallback callback;
  void* userdata1;
  void* userdata2;
} WGPUUncapturedErrorCallbackInfo;

typedef struct WGPUQueueDescriptor {
  WGPUChainedStruct* nextInChain;
  WGPUStringView label;
} WGPUQueueDescriptor;
typedef struct WGPUDeviceDescriptor {
  WGPUChainedStruct* nextInChain;
  WGPUStringView label;
  size_t requiredFeatureCount;
  const WGPUFeatureName* requiredFeatures;
  const WGPULimits* requiredLimits;
  WGPUQueueDescriptor defaultQueue;
  WGPUDeviceLostCallbackInfo deviceLostCallbackInfo;
  WGPUUncapturedErrorCallbackInfo uncapturedErrorCallbackInfo;
} WGPUDeviceDescriptor;

typedef struct WGPUBufferDescriptor {
  WGPUChainedStruct* nextInChain;
  WGPUStringView label;
  WGPUBufferUsage usage;
  uint64_t size;
  WGPUBool mappedAtCreation;
} WGPUBufferDescriptor;

typedef struct WGPUBufferBindingLayout {
  WGPUChainedStruct* nextInChain;
  WGPUBufferBindingType type;
  WGPUBool hasDynamicOffset;
  uint64_t minBindingSize;
} WGPUBufferBindingLayout;
typedef struct WGPUBindGroupLayoutEntry {
  WGPUChainedStruct* nextInChain;
  uint32_t binding;
  WGPUShaderStage visibility;
  uint32_t bindingArraySize;
  WGPUBufferBindingLayout buffer;
  uint64_t sampler[2], texture[3], storageTexture[3];  // zeros: not used
} WGPUBindGroupLayoutEntry;
typedef struct WGPUBindGroupLayoutDescriptor {
  WGPUChainedStruct* nextInChain;
  WGPUStringView label;
  size_t entryCount;
  const WGPUBindGroupLayoutEntry* entries;
} WGPUBindGroupLayoutDescriptor;
typedef struct WGPUBindGroupEntry {
  WGPUChainedStruct* nextInChain;
  uint32_t binding;
  WGPUBuffer buffer;
  uint64_t offset, size;
  void* sampler;
  void* textureView;
} WGPUBindGroupEntry;
typedef struct WGPUBindGroupDescriptor {
  WGPUChainedStruct* nextInChain;
  WGPUStringView label;
  WGPUBindGroupLayout layout;
  size_t entryCount;
  const WGPUBindGroupEntry* entries;
} WGPUBindGroupDescriptor;
typedef struct WGPUPipelineLayoutDescriptor {
  WGPUChainedStruct* nextInChain;
  WGPUStringView label;
  size_t bindGroupLayoutCount;
  const WGPUBindGroupLayout* bindGroupLayouts;
  uint32_t immediateSize;
} WGPUPipelineLayoutDescriptor;

typedef struct WGPUShaderSourceWGSL {
  WGPUChainedStruct chain;
  WGPUStringView code;
} WGPUShaderSourceWGSL;
typedef struct WGPUShaderModuleDescriptor {
  WGPUChainedStruct* nextInChain;
  WGPUStringView label;
} WGPUShaderModuleDescriptor;
typedef struct WGPUConstantEntry {
  WGPUChainedStruct* nextInChain;
  WGPUStringView key;
  double value;
} WGPUConstantEntry;
typedef struct WGPUComputeState {
  WGPUChainedStruct* nextInChain;
  WGPUShaderModule module;
  WGPUStringView entryPoint;
  size_t constantCount;
  const WGPUConstantEntry* constants;
} WGPUComputeState;
typedef struct WGPUComputePipelineDescriptor {
  WGPUChainedStruct* nextInChain;
  WGPUStringView label;
  WGPUPipelineLayout layout;
  WGPUComputeState compute;
} WGPUComputePipelineDescriptor;

typedef struct WGPUCommandEncoderDescriptor {
  WGPUChainedStruct* nextInChain;
  WGPUStringView label;
} WGPUCommandEncoderDescriptor;
typedef struct WGPUCommandBufferDescriptor {
  WGPUChainedStruct* nextInChain;
  WGPUStringView label;
} WGPUCommandBufferDescriptor;
typedef struct WGPUPassTimestampWrites {
  WGPUChainedStruct* nextInChain;
  WGPUQuerySet querySet;
  uint32_t beginningOfPassWriteIndex, endOfPassWriteIndex;
} WGPUPassTimestampWrites;
typedef struct WGPUComputePassDescriptor {
  WGPUChainedStruct* nextInChain;
  WGPUStringView label;
  const WGPUPassTimestampWrites* timestampWrites;
} WGPUComputePassDescriptor;
typedef struct WGPUQuerySetDescriptor {
  WGPUChainedStruct* nextInChain;
  WGPUStringView label;
  WGPUQueryType type;
  uint32_t count;
} WGPUQuerySetDescriptor;

WGPUInstance wgpuCreateInstance(const WGPUInstanceDescriptor*);
WGPUBool wgpuInstanceHasWGSLLanguageFeature(WGPUInstance, WGPUWGSLLanguageFeatureName);
void wgpuInstanceProcessEvents(WGPUInstance);
WGPUFuture wgpuInstanceRequestAdapter(WGPUInstance, const WGPURequestAdapterOptions*, WGPURequestAdapterCallbackInfo);
WGPUStatus wgpuAdapterGetInfo(WGPUAdapter, WGPUAdapterInfo*);
void wgpuAdapterInfoFreeMembers(WGPUAdapterInfo);
WGPUStatus wgpuAdapterGetLimits(WGPUAdapter, WGPULimits*);
void wgpuAdapterGetFeatures(WGPUAdapter, WGPUSupportedFeatures*);
void wgpuSupportedFeaturesFreeMembers(WGPUSupportedFeatures);
WGPUFuture wgpuAdapterRequestDevice(WGPUAdapter, const WGPUDeviceDescriptor*, WGPURequestDeviceCallbackInfo);
void wgpuAdapterRelease(WGPUAdapter);
WGPUStatus wgpuDeviceGetLimits(WGPUDevice, WGPULimits*);
WGPUQueue wgpuDeviceGetQueue(WGPUDevice);
WGPUBuffer wgpuDeviceCreateBuffer(WGPUDevice, const WGPUBufferDescriptor*);
WGPUShaderModule wgpuDeviceCreateShaderModule(WGPUDevice, const WGPUShaderModuleDescriptor*);
WGPUBindGroupLayout wgpuDeviceCreateBindGroupLayout(WGPUDevice, const WGPUBindGroupLayoutDescriptor*);
WGPUBindGroup wgpuDeviceCreateBindGroup(WGPUDevice, const WGPUBindGroupDescriptor*);
WGPUPipelineLayout wgpuDeviceCreatePipelineLayout(WGPUDevice, const WGPUPipelineLayoutDescriptor*);
WGPUComputePipeline wgpuDeviceCreateComputePipeline(WGPUDevice, const WGPUComputePipelineDescriptor*);
WGPUCommandEncoder wgpuDeviceCreateCommandEncoder(WGPUDevice, const WGPUCommandEncoderDescriptor*);
WGPUQuerySet wgpuDeviceCreateQuerySet(WGPUDevice, const WGPUQuerySetDescriptor*);
void wgpuDevicePushErrorScope(WGPUDevice, WGPUErrorFilter);
WGPUFuture wgpuDevicePopErrorScope(WGPUDevice, WGPUPopErrorScopeCallbackInfo);
void wgpuDeviceForceLoss(WGPUDevice, WGPUDeviceLostReason, WGPUStringView);
void wgpuDeviceDestroy(WGPUDevice);
void wgpuDeviceRelease(WGPUDevice);
WGPUFuture wgpuShaderModuleGetCompilationInfo(WGPUShaderModule, WGPUCompilationInfoCallbackInfo);
void wgpuShaderModuleRelease(WGPUShaderModule);
WGPUFuture wgpuBufferMapAsync(WGPUBuffer, WGPUMapMode, size_t, size_t, WGPUBufferMapCallbackInfo);
const void* wgpuBufferGetConstMappedRange(WGPUBuffer, size_t, size_t);
void wgpuBufferUnmap(WGPUBuffer);
void wgpuBufferDestroy(WGPUBuffer);
void wgpuBufferRelease(WGPUBuffer);
void wgpuBindGroupLayoutRelease(WGPUBindGroupLayout);
void wgpuBindGroupRelease(WGPUBindGroup);
void wgpuPipelineLayoutRelease(WGPUPipelineLayout);
void wgpuComputePipelineRelease(WGPUComputePipeline);
void wgpuQuerySetDestroy(WGPUQuerySet);
void wgpuQuerySetRelease(WGPUQuerySet);
WGPUComputePassEncoder wgpuCommandEncoderBeginComputePass(WGPUCommandEncoder, const WGPUComputePassDescriptor*);
void wgpuCommandEncoderCopyBufferToBuffer(WGPUCommandEncoder, WGPUBuffer, uint64_t, WGPUBuffer, uint64_t, uint64_t);
void wgpuCommandEncoderClearBuffer(WGPUCommandEncoder, WGPUBuffer, uint64_t, uint64_t);
void wgpuCommandEncoderResolveQuerySet(WGPUCommandEncoder, WGPUQuerySet, uint32_t, uint32_t, WGPUBuffer, uint64_t);
WGPUCommandBuffer wgpuCommandEncoderFinish(WGPUCommandEncoder, const WGPUCommandBufferDescriptor*);
void wgpuCommandEncoderRelease(WGPUCommandEncoder);
void wgpuCommandBufferRelease(WGPUCommandBuffer);
void wgpuComputePassEncoderSetPipeline(WGPUComputePassEncoder, WGPUComputePipeline);
void wgpuComputePassEncoderSetBindGroup(WGPUComputePassEncoder, uint32_t, WGPUBindGroup, size_t, const uint32_t*);
void wgpuComputePassEncoderDispatchWorkgroups(WGPUComputePassEncoder, uint32_t, uint32_t, uint32_t);
void wgpuComputePassEncoderEnd(WGPUComputePassEncoder);
void wgpuComputePassEncoderRelease(WGPUComputePassEncoder);
void wgpuQueueSubmit(WGPUQueue, size_t, const WGPUCommandBuffer*);
void wgpuQueueWriteBuffer(WGPUQueue, WGPUBuffer, uint64_t, const void*, size_t);
void wgpuQueueRelease(WGPUQueue);

}  // extern "C"

#endif  // DOPPLER_DAWN_SDK
