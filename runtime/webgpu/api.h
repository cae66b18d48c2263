// webgpu.h for both targets, and the small helpers that everything in this folder uses. Natively the functions are a
// table filled at run time (a wgpuGetProcAddress from somebody else, or a shared library); in Wasm they are linked
// symbols, of runtime/bindings/wasm/webgpu_wasm.cpp or of Emscripten's port.
#pragma once

#include <webgpu/webgpu.h>

#include <string>
#include <string_view>
#include <utility>

#include "runtime/core/status.h"

// clang-format indents each line of the list more than the one before
// clang-format off
#define ETWGPU_WEBGPU_FUNCTIONS(X) \
  X(CreateInstance) \
  X(InstanceRequestAdapter) \
  X(InstanceProcessEvents) \
  X(InstanceRelease) \
  X(AdapterGetInfo) \
  X(AdapterGetFeatures) \
  X(AdapterGetLimits) \
  X(AdapterRequestDevice) \
  X(AdapterRelease) \
  X(AdapterInfoFreeMembers) \
  X(SupportedFeaturesFreeMembers) \
  X(DeviceGetQueue) \
  X(DeviceGetLimits) \
  X(DeviceGetFeatures) \
  X(DeviceGetAdapterInfo) \
  X(DeviceAddRef) \
  X(DeviceCreateBuffer) \
  X(DeviceCreateShaderModule) \
  X(DeviceCreateComputePipeline) \
  X(DeviceCreateComputePipelineAsync) \
  X(DeviceCreateBindGroupLayout) \
  X(DeviceCreatePipelineLayout) \
  X(DeviceCreateBindGroup) \
  X(DeviceCreateCommandEncoder) \
  X(DeviceCreateQuerySet) \
  X(DeviceDestroy) \
  X(DeviceRelease) \
  X(DevicePushErrorScope) \
  X(DevicePopErrorScope) \
  X(QueueWriteBuffer) \
  X(QueueSubmit) \
  X(QueueOnSubmittedWorkDone) \
  X(QueueRelease) \
  X(BufferAddRef) \
  X(BufferMapAsync) \
  X(BufferReadMappedRange) \
  X(BufferUnmap) \
  X(BufferDestroy) \
  X(BufferRelease) \
  X(CommandEncoderBeginComputePass) \
  X(CommandEncoderCopyBufferToBuffer) \
  X(CommandEncoderClearBuffer) \
  X(CommandEncoderResolveQuerySet) \
  X(CommandEncoderFinish) \
  X(CommandEncoderRelease) \
  X(ComputePassEncoderSetPipeline) \
  X(ComputePassEncoderSetBindGroup) \
  X(ComputePassEncoderDispatchWorkgroups) \
  X(ComputePassEncoderEnd) \
  X(ComputePassEncoderRelease) \
  X(CommandBufferRelease) \
  X(ShaderModuleRelease) \
  X(ComputePipelineRelease) \
  X(BindGroupLayoutRelease) \
  X(PipelineLayoutRelease) \
  X(BindGroupRelease) \
  X(QuerySetRelease)
// clang-format on

namespace etwgpu {

namespace wg {
#ifdef __EMSCRIPTEN__
#define X(name) inline constexpr auto name = &wgpu##name;
ETWGPU_WEBGPU_FUNCTIONS(X)
#ifndef ETWGPU_USE_EMDAWNWEBGPU
X(AdapterPropertiesSubgroupMatrixConfigsFreeMembers)
#endif
#undef X
// There are no events to process in a browser: callbacks come from its event loop.
inline constexpr auto kCallbackMode = WGPUCallbackMode_AllowSpontaneous;
#else
#define X(name) inline WGPUProc##name name = nullptr;
ETWGPU_WEBGPU_FUNCTIONS(X)
// Dawn's, which may be missing: for tests, and for an experimental feature.
X(DeviceForceLoss)
X(AdapterPropertiesSubgroupMatrixConfigsFreeMembers)
#undef X
inline constexpr auto kCallbackMode = WGPUCallbackMode_AllowProcessEvents;
#endif
}  // namespace wg

#ifndef __EMSCRIPTEN__
/// Fills the function table. Call once, before Device::create; later calls with the same source do nothing.
/// no_adapter, naming the first missing function, where the implementation is too old.
Status loadWebGpu(WGPUProcGetProcAddress get_proc_address);
/// The same from a shared library that exports the functions of webgpu.h.
Status loadWebGpuLibrary(const std::string& path);
bool webGpuLoaded();
#else
inline bool webGpuLoaded() { return true; }
#endif

inline std::string toString(WGPUStringView v) {
  if (!v.data) return {};
  return v.length == WGPU_STRLEN ? std::string(v.data) : std::string(v.data, v.length);
}
inline WGPUStringView toStringView(std::string_view s) { return {s.data(), s.size()}; }

/// Owns one reference of a WebGPU object.
template <class T, auto* Release>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T handle) : handle_(handle) {}
  Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Handle() { reset(); }
  void reset() {
    if (handle_) (*Release)(std::exchange(handle_, nullptr));
  }
  T get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  T handle_ = nullptr;
};
#define ETWGPU_HANDLE(Name, Type) using Name = Handle<WGPU##Type, &wg::Type##Release>;
ETWGPU_HANDLE(AdapterHandle, Adapter)
ETWGPU_HANDLE(BindGroupHandle, BindGroup)
ETWGPU_HANDLE(BindGroupLayoutHandle, BindGroupLayout)
ETWGPU_HANDLE(BufferHandle, Buffer)
ETWGPU_HANDLE(CommandBufferHandle, CommandBuffer)
ETWGPU_HANDLE(CommandEncoderHandle, CommandEncoder)
ETWGPU_HANDLE(ComputePassHandle, ComputePassEncoder)
ETWGPU_HANDLE(PipelineHandle, ComputePipeline)
ETWGPU_HANDLE(PipelineLayoutHandle, PipelineLayout)
ETWGPU_HANDLE(QuerySetHandle, QuerySet)
ETWGPU_HANDLE(ShaderModuleHandle, ShaderModule)
#undef ETWGPU_HANDLE

}  // namespace etwgpu
