// Compute pipelines, made asynchronously and kept for the device's life.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/executor/gpu_kernel.h"
#include "runtime/webgpu/api.h"
#include "runtime/webgpu/device.h"

namespace etwgpu {

/// Binding i is storage with access[i]; a uniform block follows where has_params.
struct BindingLayout {
  std::vector<Access> access;
  bool has_params = false;
  friend auto operator<=>(const BindingLayout&, const BindingLayout&) = default;
};

/// A pipeline that is being made or is ready.
struct Pipeline {
  PipelineHandle handle;
  std::shared_ptr<Pending> pending = std::make_shared<Pending>();
  Status error;                          // of the creation itself
  WGPUBindGroupLayout layout = nullptr;  // of group 0, owned by the cache
};
/// Until the pipeline is ready: gpu_error with the kernel's name and the compiler's message where it can't be made.
Task<Status> waitForPipeline(std::shared_ptr<Pipeline> pipeline);

class PipelineCache {
 public:
  explicit PipelineCache(Device& device) : device_(device) {}

  /// The pipeline of a variant, starting it if it is new. Errors of the preprocessor are returned at once. `at_once`:
  /// it can be used without waiting; what uses it waits where it must.
  Result<std::shared_ptr<Pipeline>> get(const WgslVariant& variant, const BindingLayout& layout, bool at_once = false);
  size_t size() const { return pipelines_.size(); }

 private:
  struct Layout {
    BindGroupLayoutHandle group;
    PipelineLayoutHandle pipeline;
  };
  const Layout& layoutOf(const BindingLayout& layout);
  void start(const std::shared_ptr<Pipeline>& pipeline, const WgslVariant& variant, const std::string& code,
             const Layout& layout, bool at_once);

  Device& device_;
  std::map<BindingLayout, Layout> layouts_;
  std::map<std::pair<WgslVariant, BindingLayout>, std::shared_ptr<Pipeline>> pipelines_;
};

}  // namespace etwgpu
