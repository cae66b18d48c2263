#include "runtime/webgpu/pipelines.h"

#include "runtime/webgpu/emulated_matrices.h"

namespace etwgpu {

Result<std::shared_ptr<Pipeline>> PipelineCache::get(const WgslVariant& variant, const BindingLayout& layout,
                                                     bool at_once) {
  auto key = std::make_pair(variant, layout);
  if (const auto it = pipelines_.find(key); it != pipelines_.end()) return it->second;
  ETWGPU_ASSIGN(std::string code, expandWgsl(variant));
#ifndef __EMSCRIPTEN__
  if (device_.emulatedMatrices()) {
    ETWGPU_ASSIGN(code, emulateMatrices(std::move(code), device_.emulatedMatrices()));
  }
#endif
  const Layout& made = layoutOf(layout);
  auto pipeline = std::make_shared<Pipeline>();
  pipeline->layout = made.group.get();
  start(pipeline, variant, code, made, at_once);
  pipelines_.emplace(std::move(key), pipeline);
  return pipeline;
}

const PipelineCache::Layout& PipelineCache::layoutOf(const BindingLayout& layout) {
  Layout& made = layouts_[layout];
  if (made.pipeline) return made;
  std::vector<WGPUBindGroupLayoutEntry> entries(layout.access.size() + (layout.has_params ? 1 : 0));
  for (size_t i = 0; i < entries.size(); ++i) {
    entries[i] = WGPU_BIND_GROUP_LAYOUT_ENTRY_INIT;
    entries[i].binding = uint32_t(i);
    entries[i].visibility = WGPUShaderStage_Compute;
    entries[i].buffer.type = i >= layout.access.size()          ? WGPUBufferBindingType_Uniform
                             : layout.access[i] == Access::read ? WGPUBufferBindingType_ReadOnlyStorage
                                                                : WGPUBufferBindingType_Storage;
  }
  WGPUBindGroupLayoutDescriptor group = WGPU_BIND_GROUP_LAYOUT_DESCRIPTOR_INIT;
  group.entryCount = entries.size();
  group.entries = entries.data();
  made.group = BindGroupLayoutHandle(wg::DeviceCreateBindGroupLayout(device_.handle(), &group));
  const WGPUBindGroupLayout group_layout = made.group.get();
  WGPUPipelineLayoutDescriptor descriptor = WGPU_PIPELINE_LAYOUT_DESCRIPTOR_INIT;
  descriptor.bindGroupLayoutCount = 1;
  descriptor.bindGroupLayouts = &group_layout;
  made.pipeline = PipelineLayoutHandle(wg::DeviceCreatePipelineLayout(device_.handle(), &descriptor));
  return made;
}

namespace {
struct PipelineRequest {
  std::shared_ptr<Pipeline> pipeline;
  std::string name;
};
}  // namespace

Task<Status> waitForPipeline(std::shared_ptr<Pipeline> pipeline) {
  ETWGPU_CO_TRY(co_await Pending::wait(pipeline->pending));
  if (!pipeline->handle) co_return pipeline->error;
  co_return Status();
}

void PipelineCache::start(const std::shared_ptr<Pipeline>& pipeline, const WgslVariant& variant,
                          const std::string& code, const Layout& layout, bool at_once) {
  // The pipeline's own error only says that the module is invalid; why, the module's error scope knows.
  device_.openErrorScopes();
  WGPUShaderSourceWGSL source = WGPU_SHADER_SOURCE_WGSL_INIT;
  source.code = toStringView(code);
  WGPUShaderModuleDescriptor module_descriptor = WGPU_SHADER_MODULE_DESCRIPTOR_INIT;
  module_descriptor.nextInChain = &source.chain;
  module_descriptor.label = toStringView(variant.name);
  ShaderModuleHandle module(wg::DeviceCreateShaderModule(device_.handle(), &module_descriptor));
  WGPUComputePipelineDescriptor descriptor = WGPU_COMPUTE_PIPELINE_DESCRIPTOR_INIT;
  descriptor.label = toStringView(variant.name);
  descriptor.layout = layout.pipeline.get();
  descriptor.compute.module = module.get();
  descriptor.compute.entryPoint = toStringView("main");
  if (at_once) pipeline->handle = PipelineHandle(wg::DeviceCreateComputePipeline(device_.handle(), &descriptor));
  device_.closeErrorScopes(pipeline->pending, "kernel " + variant.name);
  if (at_once) return;
  pipeline->pending->begin();
  WGPUCreateComputePipelineAsyncCallbackInfo info = WGPU_CREATE_COMPUTE_PIPELINE_ASYNC_CALLBACK_INFO_INIT;
  info.mode = wg::kCallbackMode;
  info.userdata1 = new PipelineRequest{pipeline, variant.name};
  info.callback = [](WGPUCreatePipelineAsyncStatus, WGPUComputePipeline made, WGPUStringView message, void* user,
                     void*) {
    std::unique_ptr<PipelineRequest> request(static_cast<PipelineRequest*>(user));
    Pipeline& p = *request->pipeline;
    p.handle = PipelineHandle(made);
    if (!p.handle) p.error = Status(Code::gpu_error, "kernel " + request->name + ": " + toString(message));
    p.pending->finish({});
  };
  wg::DeviceCreateComputePipelineAsync(device_.handle(), &descriptor, info);
}

}  // namespace etwgpu
