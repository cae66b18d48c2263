// The part of webgpu.h that the runtime uses, on a browser's navigator.gpu. This side knows the layout of structs and
// flattens them to scalars and arrays; webgpu_library.js keeps the objects in a table, and a handle is an index into
// it. Every asynchronous operation ends in etwgpu_webgpu_done().
#if !defined(ETWGPU_USE_EMDAWNWEBGPU)

#include <emscripten.h>
#include <webgpu/webgpu.h>

#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

int toIndex(const void* handle) { return int(reinterpret_cast<intptr_t>(handle)); }
template <class T>
T toHandle(int index) {
  return reinterpret_cast<T>(intptr_t(index));
}
int length(WGPUStringView s) {
  return !s.data ? 0 : s.length == WGPU_STRLEN ? int(std::strlen(s.data)) : int(s.length);
}

enum class Kind { adapter, device, pipeline, map, work_done, error_scope, lost, error };
struct Operation {
  Kind kind;
  void (*callback)(void);
  void* user1;
  void* user2;
  Operation* companion = nullptr;  // of `lost`: the device's `error`, which ends with it
};

template <class CallbackInfo>
Operation* operation(Kind kind, const CallbackInfo& info) {
  return new Operation{kind, reinterpret_cast<void (*)(void)>(info.callback), info.userdata1, info.userdata2};
}

// In the order of `limits` in webgpu_library.js.
// clang-format off
#define ETWGPU_LIMITS(X)                                                                                              \
  X(maxStorageBuffersPerShaderStage)                                                                                  \
  X(maxStorageBufferBindingSize)                                                                                      \
  X(maxBufferSize) X(maxComputeWorkgroupStorageSize) X(maxComputeInvocationsPerWorkgroup) X(maxComputeWorkgroupSizeX) \
      X(maxComputeWorkgroupSizeY) X(maxComputeWorkgroupSizeZ) X(maxComputeWorkgroupsPerDimension)
// clang-format on
constexpr int kLimitCount = 9;
constexpr int kMaxFeatures = 16, kMaxMatrixConfigs = 32;
constexpr WGPUFuture kNoFuture{0};  // nobody waits on futures: WaitAny does not work in a browser

}  // namespace

extern "C" {
void etwgpu_js_retain(int handle);
void etwgpu_js_release(int handle);
void etwgpu_js_request_adapter(void* op, int power, int fallback);
int etwgpu_js_features(int handle, uint32_t* out, int capacity);
void etwgpu_js_limits(int handle, double* out);
char* etwgpu_js_info(int handle, uint32_t* subgroup_sizes);
int etwgpu_js_matrix_configs(int handle, uint32_t* out, int capacity);
void etwgpu_js_request_device(void* op, int adapter, const uint32_t* features, int count, const double* limits,
                              void* lost_op, void* error_op, const char* label, int label_length);
void etwgpu_js_watch_device(int device, void* lost_op, void* error_op);
int etwgpu_js_queue(int device);
void etwgpu_js_destroy(int object);
void etwgpu_js_push_error_scope(int device, int filter);
void etwgpu_js_pop_error_scope(void* op, int device);
int etwgpu_js_create_buffer(int device, double size, int usage, const char* label, int label_length);
void etwgpu_js_map(void* op, int buffer, int mode, double offset, double size);
int etwgpu_js_read_mapped(int buffer, double offset, void* target, double size);
void etwgpu_js_unmap(int buffer);
void etwgpu_js_write_buffer(int queue, int buffer, double offset, const void* data, double size);
void etwgpu_js_submit(int queue, int command_buffer);
void etwgpu_js_work_done(void* op, int queue);
int etwgpu_js_create_module(int device, const char* code, int length, const char* label, int label_length);
int etwgpu_js_create_group_layout(int device, const int* types, int count);
int etwgpu_js_create_pipeline_layout(int device, int group_layout);
int etwgpu_js_create_group(int device, int layout, const double* entries, int count);
/// Without an operation (null) it is made at once and returned; else the operation gets it.
int etwgpu_js_create_pipeline(void* op, int device, int layout, int module, const char* entry, int entry_length,
                              const char* label, int label_length);
int etwgpu_js_create_encoder(int device);
int etwgpu_js_begin_pass(int encoder, int query_set, int begin, int end);
void etwgpu_js_copy(int encoder, int source, double source_offset, int target, double target_offset, double size);
void etwgpu_js_clear(int encoder, int buffer, double offset, double size);
int etwgpu_js_create_query_set(int device, int count);
void etwgpu_js_resolve(int encoder, int query_set, int first, int count, int buffer, double offset);
int etwgpu_js_finish(int encoder);
void etwgpu_js_set_pipeline(int pass, int pipeline);
void etwgpu_js_set_group(int pass, int index, int group);
void etwgpu_js_dispatch(int pass, int x, int y, int z);
void etwgpu_js_end_pass(int pass);

/// status: that of the operation's callback; handle: of the object that was made; message: malloc'ed, or null.
EMSCRIPTEN_KEEPALIVE void etwgpu_webgpu_done(void* op, int status, int handle, char* message) {
  auto* o = static_cast<Operation*>(op);
  const WGPUStringView text{message, message ? std::strlen(message) : 0};
  const WGPUDevice device = toHandle<WGPUDevice>(handle);
  // The operation goes before its callback runs, which may load another model or never return here.
  const Operation done = *o;
  if (done.kind != Kind::error) delete o;
  switch (done.kind) {
    case Kind::adapter:
      reinterpret_cast<WGPURequestAdapterCallback>(done.callback)(
          WGPURequestAdapterStatus(status), toHandle<WGPUAdapter>(handle), text, done.user1, done.user2);
      break;
    case Kind::device:
      reinterpret_cast<WGPURequestDeviceCallback>(done.callback)(WGPURequestDeviceStatus(status), device, text,
                                                                 done.user1, done.user2);
      break;
    case Kind::pipeline:
      reinterpret_cast<WGPUCreateComputePipelineAsyncCallback>(done.callback)(
          WGPUCreatePipelineAsyncStatus(status), toHandle<WGPUComputePipeline>(handle), text, done.user1, done.user2);
      break;
    case Kind::map:
      reinterpret_cast<WGPUBufferMapCallback>(done.callback)(WGPUMapAsyncStatus(status), text, done.user1, done.user2);
      break;
    case Kind::work_done:
      reinterpret_cast<WGPUQueueWorkDoneCallback>(done.callback)(WGPUQueueWorkDoneStatus(status), text, done.user1,
                                                                 done.user2);
      break;
    case Kind::error_scope:
      reinterpret_cast<WGPUPopErrorScopeCallback>(done.callback)(WGPUPopErrorScopeStatus_Success, WGPUErrorType(status),
                                                                 text, done.user1, done.user2);
      break;
    case Kind::lost:
      delete done.companion;
      if (done.callback) {
        reinterpret_cast<WGPUDeviceLostCallback>(done.callback)(&device, WGPUDeviceLostReason(status), text, done.user1,
                                                                done.user2);
      }
      break;
    case Kind::error:
      if (done.callback) {
        reinterpret_cast<WGPUUncapturedErrorCallback>(done.callback)(&device, WGPUErrorType(status), text, done.user1,
                                                                     done.user2);
      }
      break;
  }
  std::free(message);
}

// ---- instance and adapter
// --------------------------------------------------------------------------------------------
WGPUInstance wgpuCreateInstance(const WGPUInstanceDescriptor*) { return toHandle<WGPUInstance>(-1); }
void wgpuInstanceRelease(WGPUInstance) {}
void wgpuInstanceProcessEvents(WGPUInstance) {}

WGPUFuture wgpuInstanceRequestAdapter(WGPUInstance, const WGPURequestAdapterOptions* options,
                                      WGPURequestAdapterCallbackInfo info) {
  etwgpu_js_request_adapter(operation(Kind::adapter, info), options ? int(options->powerPreference) : 0,
                            options ? int(options->forceFallbackAdapter) : 0);
  return kNoFuture;
}

static void readFeatures(int handle, WGPUSupportedFeatures* features) {
  auto* list = static_cast<uint32_t*>(std::malloc(kMaxFeatures * 4));
  features->featureCount = size_t(etwgpu_js_features(handle, list, kMaxFeatures));
  features->features = reinterpret_cast<WGPUFeatureName*>(list);
}
void wgpuAdapterGetFeatures(WGPUAdapter adapter, WGPUSupportedFeatures* features) {
  readFeatures(toIndex(adapter), features);
}
void wgpuDeviceGetFeatures(WGPUDevice device, WGPUSupportedFeatures* features) {
  readFeatures(toIndex(device), features);
}
void wgpuSupportedFeaturesFreeMembers(WGPUSupportedFeatures features) {
  std::free(const_cast<WGPUFeatureName*>(features.features));
}

static WGPUStatus readLimits(int handle, WGPULimits* limits) {
  double values[kLimitCount];
  etwgpu_js_limits(handle, values);
  int i = 0;
#define X(name) limits->name = decltype(limits->name)(values[i++]);
  ETWGPU_LIMITS(X)
#undef X
  return WGPUStatus_Success;
}
WGPUStatus wgpuAdapterGetLimits(WGPUAdapter adapter, WGPULimits* limits) {
  return readLimits(toIndex(adapter), limits);
}
WGPUStatus wgpuDeviceGetLimits(WGPUDevice device, WGPULimits* limits) { return readLimits(toIndex(device), limits); }

static WGPUStatus readInfo(int handle, WGPUAdapterInfo* info) {
  uint32_t sizes[3] = {};  // the last: whether it is one in software
  // One string with a line for each part; `vendor` owns it.
  const char* at = etwgpu_js_info(handle, sizes);
  for (WGPUStringView* part : {&info->vendor, &info->architecture, &info->device, &info->description}) {
    const char* end = std::strchr(at, '\n');
    if (!end) end = at + std::strlen(at);
    *part = {at, size_t(end - at)};
    at = *end ? end + 1 : end;
  }
  info->backendType = WGPUBackendType_WebGPU;
  info->adapterType = sizes[2] ? WGPUAdapterType_CPU : WGPUAdapterType_Unknown;
  info->subgroupMinSize = sizes[0];
  info->subgroupMaxSize = sizes[1];
  if (info->nextInChain && info->nextInChain->sType == WGPUSType_AdapterPropertiesSubgroupMatrixConfigs) {
    auto* configs = reinterpret_cast<WGPUAdapterPropertiesSubgroupMatrixConfigs*>(info->nextInChain);
    auto* words = static_cast<WGPUSubgroupMatrixConfig*>(std::malloc(kMaxMatrixConfigs * sizeof(*configs->configs)));
    configs->configCount =
        size_t(etwgpu_js_matrix_configs(handle, reinterpret_cast<uint32_t*>(words), kMaxMatrixConfigs));
    configs->configs = words;
  }
  return WGPUStatus_Success;
}
WGPUStatus wgpuAdapterGetInfo(WGPUAdapter adapter, WGPUAdapterInfo* info) { return readInfo(toIndex(adapter), info); }
WGPUStatus wgpuDeviceGetAdapterInfo(WGPUDevice device, WGPUAdapterInfo* info) {
  return readInfo(toIndex(device), info);
}
void wgpuAdapterInfoFreeMembers(WGPUAdapterInfo info) { std::free(const_cast<char*>(info.vendor.data)); }
void wgpuAdapterPropertiesSubgroupMatrixConfigsFreeMembers(WGPUAdapterPropertiesSubgroupMatrixConfigs configs) {
  std::free(const_cast<WGPUSubgroupMatrixConfig*>(configs.configs));
}

// ---- device
// ----------------------------------------------------------------------------------------------------------
static Operation* watch(const WGPUDeviceDescriptor& d) {
  Operation* lost = operation(Kind::lost, d.deviceLostCallbackInfo);
  lost->companion = operation(Kind::error, d.uncapturedErrorCallbackInfo);
  return lost;
}

WGPUFuture wgpuAdapterRequestDevice(WGPUAdapter adapter, const WGPUDeviceDescriptor* d,
                                    WGPURequestDeviceCallbackInfo info) {
  double limits[kLimitCount];
  int i = 0;
  // -1: not asked for. The undefined values of webgpu.h are the largest of their type.
#define X(name)                                                                                       \
  limits[i++] = d->requiredLimits && d->requiredLimits->name != decltype(d->requiredLimits->name)(-1) \
                    ? double(d->requiredLimits->name)                                                 \
                    : -1;
  ETWGPU_LIMITS(X)
#undef X
  Operation* lost = watch(*d);
  etwgpu_js_request_device(operation(Kind::device, info), toIndex(adapter),
                           reinterpret_cast<const uint32_t*>(d->requiredFeatures), int(d->requiredFeatureCount), limits,
                           lost, lost->companion, d->label.data, length(d->label));
  return kNoFuture;
}
/// Not of webgpu.h: the callbacks of a device that JavaScript has made (Module.etwgpuImportDevice).
void etwgpuWatchDevice(WGPUDevice device, const WGPUDeviceDescriptor* d) {
  Operation* lost = watch(*d);
  etwgpu_js_watch_device(toIndex(device), lost, lost->companion);
}
WGPUQueue wgpuDeviceGetQueue(WGPUDevice device) { return toHandle<WGPUQueue>(etwgpu_js_queue(toIndex(device))); }
void wgpuDeviceDestroy(WGPUDevice device) { etwgpu_js_destroy(toIndex(device)); }
void wgpuDevicePushErrorScope(WGPUDevice device, WGPUErrorFilter filter) {
  etwgpu_js_push_error_scope(toIndex(device), int(filter));
}
WGPUFuture wgpuDevicePopErrorScope(WGPUDevice device, WGPUPopErrorScopeCallbackInfo info) {
  etwgpu_js_pop_error_scope(operation(Kind::error_scope, info), toIndex(device));
  return kNoFuture;
}

// ---- buffers and queue
// -----------------------------------------------------------------------------------------------
WGPUBuffer wgpuDeviceCreateBuffer(WGPUDevice device, const WGPUBufferDescriptor* d) {
  return toHandle<WGPUBuffer>(
      etwgpu_js_create_buffer(toIndex(device), double(d->size), int(d->usage), d->label.data, length(d->label)));
}
void wgpuBufferDestroy(WGPUBuffer buffer) { etwgpu_js_destroy(toIndex(buffer)); }
WGPUFuture wgpuBufferMapAsync(WGPUBuffer buffer, WGPUMapMode mode, size_t offset, size_t size,
                              WGPUBufferMapCallbackInfo info) {
  etwgpu_js_map(operation(Kind::map, info), toIndex(buffer), int(mode), double(offset), double(size));
  return kNoFuture;
}
WGPUStatus wgpuBufferReadMappedRange(WGPUBuffer buffer, size_t offset, void* target, size_t size) {
  return etwgpu_js_read_mapped(toIndex(buffer), double(offset), target, double(size)) ? WGPUStatus_Success
                                                                                      : WGPUStatus_Error;
}
void wgpuBufferUnmap(WGPUBuffer buffer) { etwgpu_js_unmap(toIndex(buffer)); }
void wgpuQueueWriteBuffer(WGPUQueue queue, WGPUBuffer buffer, uint64_t offset, const void* data, size_t size) {
  etwgpu_js_write_buffer(toIndex(queue), toIndex(buffer), double(offset), data, double(size));
}
void wgpuQueueSubmit(WGPUQueue queue, size_t count, const WGPUCommandBuffer* commands) {
  for (size_t i = 0; i < count; ++i) etwgpu_js_submit(toIndex(queue), toIndex(commands[i]));
}
WGPUFuture wgpuQueueOnSubmittedWorkDone(WGPUQueue queue, WGPUQueueWorkDoneCallbackInfo info) {
  etwgpu_js_work_done(operation(Kind::work_done, info), toIndex(queue));
  return kNoFuture;
}

// ---- pipelines and bind groups
// ---------------------------------------------------------------------------------------
WGPUShaderModule wgpuDeviceCreateShaderModule(WGPUDevice device, const WGPUShaderModuleDescriptor* d) {
  const auto* source = reinterpret_cast<const WGPUShaderSourceWGSL*>(d->nextInChain);  // the only kind that we make
  return toHandle<WGPUShaderModule>(etwgpu_js_create_module(toIndex(device), source->code.data, length(source->code),
                                                            d->label.data, length(d->label)));
}
WGPUBindGroupLayout wgpuDeviceCreateBindGroupLayout(WGPUDevice device, const WGPUBindGroupLayoutDescriptor* d) {
  std::vector<int> types(d->entryCount);  // binding i is entry i, a buffer of the compute stage
  for (size_t i = 0; i < d->entryCount; ++i) types[i] = int(d->entries[i].buffer.type);
  return toHandle<WGPUBindGroupLayout>(etwgpu_js_create_group_layout(toIndex(device), types.data(), int(types.size())));
}
WGPUPipelineLayout wgpuDeviceCreatePipelineLayout(WGPUDevice device, const WGPUPipelineLayoutDescriptor* d) {
  return toHandle<WGPUPipelineLayout>(
      etwgpu_js_create_pipeline_layout(toIndex(device), toIndex(d->bindGroupLayouts[0])));
}
WGPUBindGroup wgpuDeviceCreateBindGroup(WGPUDevice device, const WGPUBindGroupDescriptor* d) {
  std::vector<double> entries;  // buffer, offset, size; binding i is entry i
  for (size_t i = 0; i < d->entryCount; ++i) {
    const WGPUBindGroupEntry& e = d->entries[i];
    entries.push_back(toIndex(e.buffer));
    entries.push_back(double(e.offset));
    entries.push_back(double(e.size));
  }
  return toHandle<WGPUBindGroup>(
      etwgpu_js_create_group(toIndex(device), toIndex(d->layout), entries.data(), int(d->entryCount)));
}
namespace {
int createPipeline(void* op, WGPUDevice device, const WGPUComputePipelineDescriptor* d) {
  return etwgpu_js_create_pipeline(op, toIndex(device), toIndex(d->layout), toIndex(d->compute.module),
                                   d->compute.entryPoint.data, length(d->compute.entryPoint), d->label.data,
                                   length(d->label));
}
}  // namespace
WGPUComputePipeline wgpuDeviceCreateComputePipeline(WGPUDevice device, const WGPUComputePipelineDescriptor* d) {
  return toHandle<WGPUComputePipeline>(createPipeline(nullptr, device, d));
}
WGPUFuture wgpuDeviceCreateComputePipelineAsync(WGPUDevice device, const WGPUComputePipelineDescriptor* d,
                                                WGPUCreateComputePipelineAsyncCallbackInfo info) {
  createPipeline(operation(Kind::pipeline, info), device, d);
  return kNoFuture;
}

// ---- commands
// --------------------------------------------------------------------------------------------------------
WGPUCommandEncoder wgpuDeviceCreateCommandEncoder(WGPUDevice device, const WGPUCommandEncoderDescriptor*) {
  return toHandle<WGPUCommandEncoder>(etwgpu_js_create_encoder(toIndex(device)));
}
WGPUComputePassEncoder wgpuCommandEncoderBeginComputePass(WGPUCommandEncoder encoder,
                                                          const WGPUComputePassDescriptor* d) {
  const WGPUPassTimestampWrites* t = d ? d->timestampWrites : nullptr;
  return toHandle<WGPUComputePassEncoder>(etwgpu_js_begin_pass(toIndex(encoder), t ? toIndex(t->querySet) : 0,
                                                               t ? int(t->beginningOfPassWriteIndex) : 0,
                                                               t ? int(t->endOfPassWriteIndex) : 0));
}
void wgpuCommandEncoderCopyBufferToBuffer(WGPUCommandEncoder encoder, WGPUBuffer source, uint64_t source_offset,
                                          WGPUBuffer target, uint64_t target_offset, uint64_t size) {
  etwgpu_js_copy(toIndex(encoder), toIndex(source), double(source_offset), toIndex(target), double(target_offset),
                 double(size));
}
void wgpuCommandEncoderClearBuffer(WGPUCommandEncoder encoder, WGPUBuffer buffer, uint64_t offset, uint64_t size) {
  etwgpu_js_clear(toIndex(encoder), toIndex(buffer), double(offset), double(size));
}
WGPUQuerySet wgpuDeviceCreateQuerySet(WGPUDevice device, const WGPUQuerySetDescriptor* d) {
  return toHandle<WGPUQuerySet>(etwgpu_js_create_query_set(toIndex(device), int(d->count)));
}
void wgpuCommandEncoderResolveQuerySet(WGPUCommandEncoder encoder, WGPUQuerySet queries, uint32_t first, uint32_t count,
                                       WGPUBuffer buffer, uint64_t offset) {
  etwgpu_js_resolve(toIndex(encoder), toIndex(queries), int(first), int(count), toIndex(buffer), double(offset));
}
WGPUCommandBuffer wgpuCommandEncoderFinish(WGPUCommandEncoder encoder, const WGPUCommandBufferDescriptor*) {
  return toHandle<WGPUCommandBuffer>(etwgpu_js_finish(toIndex(encoder)));
}
void wgpuComputePassEncoderSetPipeline(WGPUComputePassEncoder pass, WGPUComputePipeline pipeline) {
  etwgpu_js_set_pipeline(toIndex(pass), toIndex(pipeline));
}
void wgpuComputePassEncoderSetBindGroup(WGPUComputePassEncoder pass, uint32_t index, WGPUBindGroup group, size_t,
                                        const uint32_t*) {
  etwgpu_js_set_group(toIndex(pass), int(index), toIndex(group));
}
void wgpuComputePassEncoderDispatchWorkgroups(WGPUComputePassEncoder pass, uint32_t x, uint32_t y, uint32_t z) {
  etwgpu_js_dispatch(toIndex(pass), int(x), int(y), int(z));
}
void wgpuComputePassEncoderEnd(WGPUComputePassEncoder pass) { etwgpu_js_end_pass(toIndex(pass)); }

void wgpuDeviceAddRef(WGPUDevice device) { etwgpu_js_retain(toIndex(device)); }
void wgpuBufferAddRef(WGPUBuffer buffer) { etwgpu_js_retain(toIndex(buffer)); }
#define X(Type)                                     \
  void wgpu##Type##Release(WGPU##Type handle) {     \
    if (handle) etwgpu_js_release(toIndex(handle)); \
  }
// clang-format off
X(Adapter) X(Device) X(Queue) X(Buffer) X(CommandBuffer) X(CommandEncoder) X(ComputePassEncoder) X(ShaderModule)
X(ComputePipeline) X(BindGroupLayout) X(PipelineLayout) X(BindGroup) X(QuerySet)
// clang-format on
#undef X
}

#endif
