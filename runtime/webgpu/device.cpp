#include "runtime/webgpu/device.h"

#include <algorithm>
#include <cstring>

#include "runtime/webgpu/pipelines.h"

#ifndef __EMSCRIPTEN__
#include <dlfcn.h>
#endif

namespace etwgpu {

// ---- loading
// ---------------------------------------------------------------------------------------------------------
#ifndef __EMSCRIPTEN__
namespace {
bool g_loaded = false;

template <class Lookup>
Status fillTable(const Lookup& lookup) {
  const char* missing = nullptr;
#define X(name)                                                      \
  wg::name = reinterpret_cast<WGPUProc##name>(lookup("wgpu" #name)); \
  if (!wg::name && !missing) missing = "wgpu" #name;
  ETWGPU_WEBGPU_FUNCTIONS(X)
#undef X
#define X(name) wg::name = reinterpret_cast<WGPUProc##name>(lookup("wgpu" #name));
  X(DeviceForceLoss)
  X(AdapterPropertiesSubgroupMatrixConfigsFreeMembers)
#undef X
  if (missing)
    return Status(Code::no_adapter, format("the WebGPU library lacks %s: it is too old or too new", missing));
  g_loaded = true;
  return {};
}
}  // namespace

Status loadWebGpu(WGPUProcGetProcAddress get_proc_address) {
  if (g_loaded) return {};
  if (!get_proc_address) return Status(Code::invalid_argument, "wgpuGetProcAddress is null");
  return fillTable([&](const char* name) { return reinterpret_cast<void*>(get_proc_address({name, WGPU_STRLEN})); });
}

Status loadWebGpuLibrary(const std::string& path) {
  if (g_loaded) return {};
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return Status(Code::no_adapter, format("cannot load the WebGPU library: %s", dlerror()));
  return fillTable([&](const char* name) { return dlsym(library, name); });
}

bool webGpuLoaded() { return g_loaded; }
#endif

namespace {

/// One instance a process: it holds the driver's state, and making one takes long.
WGPUInstance instance() {
  static const WGPUInstance instance = wg::CreateInstance(nullptr);
  return instance;
}

struct AdapterResult {
  WGPUAdapter adapter = nullptr;
  std::string message;
};
struct DeviceResult {
  WGPUDevice device = nullptr;
  std::string message;
};

void requestAdapter(const DeviceOptions* options, Completion<AdapterResult>* completion) {
  WGPURequestAdapterOptions request = WGPU_REQUEST_ADAPTER_OPTIONS_INIT;
  request.featureLevel = WGPUFeatureLevel_Core;
  request.powerPreference = WGPUPowerPreference_HighPerformance;
  request.backendType = options->backend;
  request.forceFallbackAdapter = options->fallback_adapter;
#ifndef __EMSCRIPTEN__
  // Where a browser needs a flag of its user's: subgroup matrices, and f16 on NVIDIA, whose results we have checked.
  static const char* const kToggles[] = {"allow_unsafe_apis", "vulkan_enable_f16_on_nvidia"};
  WGPUDawnTogglesDescriptor toggles = WGPU_DAWN_TOGGLES_DESCRIPTOR_INIT;
  toggles.enabledToggleCount = std::size(kToggles);
  toggles.enabledToggles = kToggles;
  request.nextInChain = &toggles.chain;
#endif
  WGPURequestAdapterCallbackInfo info = WGPU_REQUEST_ADAPTER_CALLBACK_INFO_INIT;
  info.mode = wg::kCallbackMode;
  info.userdata1 = completion;
  info.callback = [](WGPURequestAdapterStatus, WGPUAdapter adapter, WGPUStringView message, void* user, void*) {
    static_cast<Completion<AdapterResult>*>(user)->resolve({adapter, toString(message)});
  };
  wg::InstanceRequestAdapter(instance(), &request, info);
}

/// Everything that kernels or plans can use more of than the default.
WGPULimits usefulLimits(const WGPULimits& offered) {
  WGPULimits limits = WGPU_LIMITS_INIT;
  limits.maxStorageBufferBindingSize = offered.maxStorageBufferBindingSize;
  limits.maxBufferSize = offered.maxBufferSize;
  limits.maxStorageBuffersPerShaderStage = offered.maxStorageBuffersPerShaderStage;
  limits.maxComputeWorkgroupStorageSize = offered.maxComputeWorkgroupStorageSize;
  limits.maxComputeInvocationsPerWorkgroup = offered.maxComputeInvocationsPerWorkgroup;
  limits.maxComputeWorkgroupSizeX = offered.maxComputeWorkgroupSizeX;
  limits.maxComputeWorkgroupSizeY = offered.maxComputeWorkgroupSizeY;
  limits.maxComputeWorkgroupSizeZ = offered.maxComputeWorkgroupSizeZ;
  return limits;
}

}  // namespace

// ---- Pending
// ---------------------------------------------------------------------------------------------------------
void Pending::finish(Status status) {
  if (!status.ok() && status_.ok()) status_ = std::move(status);
  if (--outstanding_ > 0) return;
  for (const auto& waiter : std::exchange(waiters_, {})) waiter.resume();
}

struct Pending::Awaiter {
  explicit Awaiter(Pending* p) : pending(p) {}
  Pending* pending;
  bool await_ready() const { return pending->done(); }
  void await_suspend(std::coroutine_handle<> handle) { pending->waiters_.push_back(handle); }
  void await_resume() {}
};

Task<Status> Pending::wait(std::shared_ptr<Pending> pending) {
  Awaiter awaiter(pending.get());
  co_await awaiter;
  co_return pending->status_;
}

// ---- Device
// ----------------------------------------------------------------------------------------------------------
/// What callbacks write to; they may come after the Device is gone.
struct Device::State {
  bool lost = false;
  std::string lost_reason;
  Status error;
};

Task<Result<std::unique_ptr<Device>>> Device::create(DeviceOptions options) {
  if (!webGpuLoaded()) co_return Status(Code::no_adapter, "WebGPU is not available: no implementation was loaded");
  std::unique_ptr<Device> device(new Device);
  device->state_ = std::make_shared<State>();
  WGPUAdapterInfo info = WGPU_ADAPTER_INFO_INIT;
  if (options.existing) {
    device->device_ = options.existing;
    device->owned_ = false;
    device->watchExisting();
    wg::DeviceGetAdapterInfo(options.existing, &info);
  } else {
    const DeviceOptions* request = &options;
    auto adapter_awaiter =
        awaitCallback<AdapterResult>([request](Completion<AdapterResult>* c) { requestAdapter(request, c); });
    AdapterResult found = co_await adapter_awaiter;
    AdapterHandle adapter(found.adapter);
    if (!adapter) co_return Status(Code::no_adapter, "no WebGPU adapter: " + found.message);
    wg::AdapterGetInfo(adapter.get(), &info);
    if (info.backendType == WGPUBackendType_Null) {
      wg::AdapterInfoFreeMembers(info);
      co_return Status(Code::no_adapter, "no WebGPU adapter: only the null backend, which computes nothing");
    }
    WGPULimits offered = WGPU_LIMITS_INIT;
    wg::AdapterGetLimits(adapter.get(), &offered);
    WGPULimits limits = usefulLimits(offered);
    std::vector<WGPUFeatureName> features;
    WGPUSupportedFeatures supported = WGPU_SUPPORTED_FEATURES_INIT;
    wg::AdapterGetFeatures(adapter.get(), &supported);
    for (size_t i = 0; i < supported.featureCount; ++i) {
      const WGPUFeatureName f = supported.features[i];
      if ((f == WGPUFeatureName_ShaderF16 && !options.disable_f16) ||
          (f == WGPUFeatureName_Subgroups && !options.disable_subgroups) ||
          (f == WGPUFeatureName_ChromiumExperimentalSubgroupMatrix && !options.disable_subgroups) ||
          (f == WGPUFeatureName_TimestampQuery && !options.disable_timestamps)) {
        features.push_back(f);
      }
    }
    wg::SupportedFeaturesFreeMembers(supported);

    WGPUDeviceDescriptor descriptor = WGPU_DEVICE_DESCRIPTOR_INIT;
    descriptor.label = toStringView("executorch-webgpu");
    descriptor.requiredFeatureCount = features.size();
    descriptor.requiredFeatures = features.data();
    descriptor.requiredLimits = options.default_limits ? nullptr : &limits;
    device->setCallbacks(descriptor);
    const WGPUDeviceDescriptor* d = &descriptor;
    const WGPUAdapter a = adapter.get();
    auto device_awaiter = awaitCallback<DeviceResult>([a, d](Completion<DeviceResult>* completion) {
      WGPURequestDeviceCallbackInfo callback = WGPU_REQUEST_DEVICE_CALLBACK_INFO_INIT;
      callback.mode = wg::kCallbackMode;
      callback.userdata1 = completion;
      callback.callback = [](WGPURequestDeviceStatus, WGPUDevice dev, WGPUStringView message, void* user, void*) {
        static_cast<Completion<DeviceResult>*>(user)->resolve({dev, toString(message)});
      };
      wg::AdapterRequestDevice(a, d, callback);
    });
    DeviceResult made = co_await device_awaiter;
    if (!made.device) {
      wg::AdapterInfoFreeMembers(info);
      co_return Status(Code::no_adapter, "the WebGPU adapter gave no device: " + made.message);
    }
    device->device_ = made.device;
  }
  device->queue_ = wg::DeviceGetQueue(device->device_);
  device->readCapabilities(options, info);
  wg::AdapterInfoFreeMembers(info);
  device->pipelines_ = std::make_unique<PipelineCache>(*device);
  co_return std::move(device);
}

void Device::setCallbacks(WGPUDeviceDescriptor& descriptor) {
  WGPUDeviceLostCallbackInfo& lost = descriptor.deviceLostCallbackInfo;
  lost.mode = wg::kCallbackMode;
  // The callback comes exactly once, and owns this reference to the state.
  lost.userdata1 = new std::shared_ptr<State>(state_);
  lost.callback = [](WGPUDevice const*, WGPUDeviceLostReason reason, WGPUStringView message, void* user, void*) {
    std::unique_ptr<std::shared_ptr<State>> state(static_cast<std::shared_ptr<State>*>(user));
    (*state)->lost = true;
    (*state)->lost_reason = reason == WGPUDeviceLostReason_Destroyed ? "it was destroyed" : toString(message);
  };
  descriptor.uncapturedErrorCallbackInfo.userdata1 = state_.get();
  descriptor.uncapturedErrorCallbackInfo.callback = [](WGPUDevice const*, WGPUErrorType type, WGPUStringView message,
                                                       void* user, void*) {
    auto* state = static_cast<State*>(user);
    if (!state->error.ok()) return;
    state->error = Status(type == WGPUErrorType_OutOfMemory ? Code::out_of_memory : Code::gpu_error, toString(message));
  };
}

#if defined(__EMSCRIPTEN__) && !defined(ETWGPU_USE_EMDAWNWEBGPU)
extern "C" void etwgpuWatchDevice(WGPUDevice device, const WGPUDeviceDescriptor* descriptor);
#endif

/// webgpu.h has no way to watch a device that exists; our JavaScript library has.
void Device::watchExisting() {
#if defined(__EMSCRIPTEN__) && !defined(ETWGPU_USE_EMDAWNWEBGPU)
  WGPUDeviceDescriptor descriptor = WGPU_DEVICE_DESCRIPTOR_INIT;
  setCallbacks(descriptor);
  etwgpuWatchDevice(device_, &descriptor);
#endif
}

void Device::readCapabilities(const DeviceOptions& options, const WGPUAdapterInfo& info) {
  WGPULimits limits = WGPU_LIMITS_INIT;
  wg::DeviceGetLimits(device_, &limits);
  GpuCapabilities& c = capabilities_;
  c.max_invocations = limits.maxComputeInvocationsPerWorkgroup;
  c.max_workgroup_bytes = limits.maxComputeWorkgroupStorageSize;
  c.max_storage_buffers = limits.maxStorageBuffersPerShaderStage;
  c.max_workgroups = limits.maxComputeWorkgroupsPerDimension;
  c.max_binding_bytes = limits.maxStorageBufferBindingSize;
  c.max_buffer_bytes = limits.maxBufferSize;
  if (options.max_binding_bytes) {
    c.max_binding_bytes = std::min(c.max_binding_bytes, options.max_binding_bytes);
    c.max_buffer_bytes = std::min(c.max_buffer_bytes, 2 * options.max_binding_bytes);
  }
  c.vendor = toString(info.vendor);
  c.architecture = toString(info.architecture);
  c.description = toString(info.description);
  if (c.description.empty()) c.description = toString(info.device);
  c.software = info.adapterType == WGPUAdapterType_CPU;
  WGPUSupportedFeatures features = WGPU_SUPPORTED_FEATURES_INIT;
  wg::DeviceGetFeatures(device_, &features);
  bool matrices = false;
  for (size_t i = 0; i < features.featureCount; ++i) {
    switch (features.features[i]) {
      case WGPUFeatureName_ChromiumExperimentalSubgroupMatrix:
        matrices = true;
        break;
      case WGPUFeatureName_ShaderF16:
        c.f16 = !options.disable_f16;
        break;
      case WGPUFeatureName_Subgroups:
        c.subgroups = !options.disable_subgroups;
        break;
      case WGPUFeatureName_TimestampQuery:
        timestamps_ = !options.disable_timestamps;
        break;
      default:
        break;
    }
  }
  wg::SupportedFeaturesFreeMembers(features);
  if (c.subgroups) {
    // Sizes that the adapter does not tell (an older browser) may be anything that WebGPU allows.
    c.subgroup_min = info.subgroupMinSize ? info.subgroupMinSize : 4;
    c.subgroup_max = info.subgroupMaxSize ? info.subgroupMaxSize : 128;
  }
  // The kernels count on subgroups of 32.
  if (matrices && c.f16 && c.subgroups && c.subgroup_min == 32 && c.subgroup_max == 32) readSubgroupMatrices();
  if (c.f16 && (options.emulate_matrices == 8 || options.emulate_matrices == 16)) {
    emulated_matrices_ = options.emulate_matrices;
    c.subgroup_matrix = true;
    c.matrix_size = uint32_t(emulated_matrices_);
  }
}

uint32_t subgroupMatrixSize(const uint32_t* words, size_t count, uint32_t subgroup_size) {
  const auto type = [](uint32_t t) {
    return t >= WGPUSubgroupMatrixComponentType_F32 && t <= WGPUSubgroupMatrixComponentType_I8;
  };
  // In an array of 7 words a record, the second of 5 words would begin with a subgroup's sizes.
  size_t stride = 5;
  for (size_t i = 1; i < count; ++i)
    if (!type(words[5 * i]) || !type(words[5 * i + 1])) stride = 7;
  uint32_t best = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t* w = words + stride * i;
    if (w[0] != WGPUSubgroupMatrixComponentType_F16 || w[1] != WGPUSubgroupMatrixComponentType_F32) continue;
    if (w[2] != w[3] || w[3] != w[4] || (w[2] != 8 && w[2] != 16)) continue;
    if (stride == 7 && (subgroup_size < w[5] || subgroup_size > w[6])) continue;
    best = std::max(best, w[2]);
  }
  return best;
}

void Device::readSubgroupMatrices() {
#ifndef ETWGPU_USE_EMDAWNWEBGPU
  if (!wg::AdapterPropertiesSubgroupMatrixConfigsFreeMembers) return;
  WGPUAdapterPropertiesSubgroupMatrixConfigs configs = WGPU_ADAPTER_PROPERTIES_SUBGROUP_MATRIX_CONFIGS_INIT;
  WGPUAdapterInfo info = WGPU_ADAPTER_INFO_INIT;
  info.nextInChain = &configs.chain;
  if (wg::DeviceGetAdapterInfo(device_, &info) != WGPUStatus_Success) return;
  GpuCapabilities& c = capabilities_;
  c.matrix_size =
      subgroupMatrixSize(reinterpret_cast<const uint32_t*>(configs.configs), configs.configCount, c.subgroup_max);
  c.subgroup_matrix = c.matrix_size > 0;
  wg::AdapterPropertiesSubgroupMatrixConfigsFreeMembers(configs);
  wg::AdapterInfoFreeMembers(info);
#endif
}

Device::~Device() {
  pipelines_.reset();
  if (queue_) wg::QueueRelease(queue_);
  if (device_) {
    if (owned_) wg::DeviceDestroy(device_);
    wg::DeviceRelease(device_);
    pump();  // the callback of the loss, which frees its state
  }
}

void Device::destroy() {
  // At once: calls that are under way see errors of their own before the device's callback comes.
  state_->lost = true;
  state_->lost_reason = "forced by a test";
#ifndef __EMSCRIPTEN__
  if (wg::DeviceForceLoss) {
    wg::DeviceForceLoss(device_, WGPUDeviceLostReason_Unknown, toStringView("forced by a test"));
    return;
  }
#endif
  wg::DeviceDestroy(device_);
}

Status Device::status() const {
  if (state_->lost) return Status(Code::device_lost, "the GPU device was lost: " + state_->lost_reason);
  return {};
}

Status Device::takeError() {
  ETWGPU_TRY(status());
  return std::exchange(state_->error, Status());
}

void Device::openErrorScopes() {
  wg::DevicePushErrorScope(device_, WGPUErrorFilter_OutOfMemory);
  wg::DevicePushErrorScope(device_, WGPUErrorFilter_Validation);
}

namespace {
struct ScopeResult {
  std::shared_ptr<Pending> pending;
  std::string what;
};
}  // namespace

void Device::closeErrorScopes(const std::shared_ptr<Pending>& into, std::string what) {
  for (int i = 0; i < 2; ++i) {
    into->begin();
    WGPUPopErrorScopeCallbackInfo info = WGPU_POP_ERROR_SCOPE_CALLBACK_INFO_INIT;
    info.mode = wg::kCallbackMode;
    info.userdata1 = new ScopeResult{into, what};
    info.callback = [](WGPUPopErrorScopeStatus, WGPUErrorType type, WGPUStringView message, void* user, void*) {
      std::unique_ptr<ScopeResult> result(static_cast<ScopeResult*>(user));
      Status status;
      if (type == WGPUErrorType_OutOfMemory) {
        status = Status(Code::out_of_memory, result->what + ": " + toString(message));
      } else if (type == WGPUErrorType_Validation || type == WGPUErrorType_Internal) {
        status = Status(Code::gpu_error, result->what + ": " + toString(message));
      }
      result->pending->finish(std::move(status));
    };
    wg::DevicePopErrorScope(device_, info);
  }
}

void Device::submit(WGPUCommandEncoder encoder) {
  const CommandBufferHandle commands(wg::CommandEncoderFinish(encoder, nullptr));
  const WGPUCommandBuffer list = commands.get();
  wg::QueueSubmit(queue_, 1, &list);
}

Task<Status> Device::workDone() {
  const WGPUQueue queue = queue_;
  auto awaiter = awaitCallback<int>([queue](Completion<int>* completion) {
    WGPUQueueWorkDoneCallbackInfo info = WGPU_QUEUE_WORK_DONE_CALLBACK_INFO_INIT;
    info.mode = wg::kCallbackMode;
    info.userdata1 = completion;
    info.callback = [](WGPUQueueWorkDoneStatus status, WGPUStringView, void* user, void*) {
      static_cast<Completion<int>*>(user)->resolve(int(status));
    };
    wg::QueueOnSubmittedWorkDone(queue, info);
  });
  const int result = co_await awaiter;
  ETWGPU_CO_TRY(status());
  if (result != WGPUQueueWorkDoneStatus_Success) co_return Status(Code::gpu_error, "waiting for the GPU failed");
  co_return Status();
}

void Device::pump() {
#ifndef __EMSCRIPTEN__
  pumpWebGpu();
#endif
}

#ifndef __EMSCRIPTEN__
std::recursive_mutex& webGpuMutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

void pumpWebGpu() {
  const std::lock_guard<std::recursive_mutex> lock(webGpuMutex());
  if (g_loaded) wg::InstanceProcessEvents(instance());
}
#endif

namespace {
struct MapResult {
  int status = 0;
  std::string message;
};
}  // namespace

Status mapStatus(const Device& device, WGPUMapAsyncStatus status, const std::string& message) {
  ETWGPU_TRY(device.status());
  if (status == WGPUMapAsyncStatus_Success) return {};
  // the device's own callback may be late
  if (status == WGPUMapAsyncStatus_Aborted || status == WGPUMapAsyncStatus_CallbackCancelled)
    return Status(Code::device_lost, "the GPU device was lost: " + message);
  return Status(Code::gpu_error, "reading back from the GPU failed: " + message);
}

Task<Status> mapForReading(Device& device, WGPUBuffer buffer, uint64_t size) {
  ETWGPU_CO_TRY(device.status());
  auto awaiter = awaitCallback<MapResult>([buffer, size](Completion<MapResult>* completion) {
    WGPUBufferMapCallbackInfo info = WGPU_BUFFER_MAP_CALLBACK_INFO_INIT;
    info.mode = wg::kCallbackMode;
    info.userdata1 = completion;
    info.callback = [](WGPUMapAsyncStatus status, WGPUStringView message, void* user, void*) {
      static_cast<Completion<MapResult>*>(user)->resolve({int(status), toString(message)});
    };
    wg::BufferMapAsync(buffer, WGPUMapMode_Read, 0, size_t((size + 3) / 4 * 4), info);
  });
  MapResult result = co_await awaiter;
  co_return mapStatus(device, WGPUMapAsyncStatus(result.status), result.message);
}

Status readMapped(const Device& device, WGPUBuffer buffer, uint64_t offset, void* target, uint64_t size) {
  if (size == 0) return {};
  const uint64_t whole = size / 4 * 4;
  uint8_t tail[4] = {};
  bool ok =
      whole == 0 || wg::BufferReadMappedRange(buffer, size_t(offset), target, size_t(whole)) == WGPUStatus_Success;
  if (ok && whole < size) {
    // Ranges start at multiples of 8: a last word that does not is read together with the one before it.
    const uint64_t start = whole / 8 * 8;
    uint8_t words[8] = {};
    ok = wg::BufferReadMappedRange(buffer, size_t(offset + start), words, size_t(whole + 4 - start)) ==
         WGPUStatus_Success;
    std::memcpy(tail, words + (whole - start), 4);
    std::memcpy(static_cast<uint8_t*>(target) + whole, tail, size_t(size - whole));
  }
  if (!ok) ETWGPU_TRY(device.status());
  return ok ? Status() : Status(Code::gpu_error, "reading a mapped buffer failed");
}

}  // namespace etwgpu
