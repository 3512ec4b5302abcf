// Dawn, loaded at run time: `doppler` works on the CPU where it is absent, and says clearly that it is.
#pragma once

#include <string>

#include "gpu/webgpu/webgpu_c.h"

namespace doppler::gpu {

#ifdef DOPPLER_DAWN_SDK
#define DOPPLER_WGPU_SDK_FUNCTIONS(X) X(AdapterPropertiesSubgroupMatrixConfigsFreeMembers)
#else
#define DOPPLER_WGPU_SDK_FUNCTIONS(X)
#endif

#define DOPPLER_WGPU_FUNCTIONS(X)         \
  DOPPLER_WGPU_SDK_FUNCTIONS(X)           \
  X(CreateInstance)                       \
  X(InstanceHasWGSLLanguageFeature)       \
  X(InstanceProcessEvents)                \
  X(InstanceRequestAdapter)               \
  X(AdapterGetInfo)                       \
  X(AdapterInfoFreeMembers)               \
  X(AdapterGetLimits)                     \
  X(AdapterGetFeatures)                   \
  X(SupportedFeaturesFreeMembers)         \
  X(AdapterRequestDevice)                 \
  X(AdapterRelease)                       \
  X(DeviceGetLimits)                      \
  X(DeviceGetQueue)                       \
  X(DeviceCreateBuffer)                   \
  X(DeviceCreateShaderModule)             \
  X(DeviceCreateBindGroupLayout)          \
  X(DeviceCreateBindGroup)                \
  X(DeviceCreatePipelineLayout)           \
  X(DeviceCreateComputePipeline)          \
  X(DeviceCreateCommandEncoder)           \
  X(DeviceCreateQuerySet)                 \
  X(DevicePushErrorScope)                 \
  X(DevicePopErrorScope)                  \
  X(DeviceForceLoss)                      \
  X(DeviceDestroy)                        \
  X(DeviceRelease)                        \
  X(ShaderModuleGetCompilationInfo)       \
  X(ShaderModuleRelease)                  \
  X(BufferMapAsync)                       \
  X(BufferGetConstMappedRange)            \
  X(BufferUnmap)                          \
  X(BufferDestroy)                        \
  X(BufferRelease)                        \
  X(BindGroupLayoutRelease)               \
  X(BindGroupRelease)                     \
  X(PipelineLayoutRelease)                \
  X(ComputePipelineRelease)               \
  X(QuerySetDestroy)                      \
  X(QuerySetRelease)                      \
  X(CommandEncoderBeginComputePass)       \
  X(CommandEncoderCopyBufferToBuffer)     \
  X(CommandEncoderClearBuffer)            \
  X(CommandEncoderResolveQuerySet)        \
  X(CommandEncoderFinish)                 \
  X(CommandEncoderRelease)                \
  X(CommandBufferRelease)                 \
  X(ComputePassEncoderSetPipeline)        \
  X(ComputePassEncoderSetBindGroup)       \
  X(ComputePassEncoderDispatchWorkgroups) \
  X(ComputePassEncoderEnd)                \
  X(ComputePassEncoderRelease)            \
  X(QueueSubmit)                          \
  X(QueueWriteBuffer)                     \
  X(QueueRelease)

// wgpuXyz is wgpu().Xyz.
struct WgpuFunctions {
#define DOPPLER_WGPU_MEMBER(name) decltype(&wgpu##name) name = nullptr;
  DOPPLER_WGPU_FUNCTIONS(DOPPLER_WGPU_MEMBER)
#undef DOPPLER_WGPU_MEMBER
};

// Loads the library on first use. Null if it cannot be had, with the reason in *why. Looked for, in this order:
// $DOPPLER_DAWN (a file), beside the executable, in dawn/ beside it, the loader's own path.
const WgpuFunctions* find_wgpu(std::string* why);

// The same, but its absence is an error.
const WgpuFunctions& wgpu();

// The file it was loaded from; empty where it cannot be had.
std::string wgpu_path();

}  // namespace doppler::gpu
