#include "tests/cpp/dawn.h"

#include <webgpu/webgpu.h>

#include <cstdlib>

#include "runtime/webgpu/api.h"

// LeakSanitizer asks for this by its name, in builds that have it: what the software driver keeps is not ours.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libvulkan_lvp\n"; }

namespace etwgpu::test {

Status loadDawn() {
  if (webGpuLoaded()) return {};
  const char* module = std::getenv("ETWGPU_DAWN_MODULE");
  if (!module || !*module) return Status(Code::no_adapter, "ETWGPU_DAWN_MODULE is not set");
  return loadWebGpu(wgpuGetProcAddress);  // of etwgpu_dawn
}

}  // namespace etwgpu::test
