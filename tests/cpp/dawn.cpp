#include "tests/cpp/dawn.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "runtime/webgpu/api.h"

namespace etwgpu::test {

Status loadDawn() {
  if (webGpuLoaded()) return {};
  const char* module = std::getenv("ETWGPU_DAWN_MODULE");
  if (!module || !*module) return Status(Code::no_adapter, "ETWGPU_DAWN_MODULE is not set");
  // .../python3.11/site-packages/wgpudawn/_lib/_wgpu_dawn.abi3.so
  const std::filesystem::path packages = std::filesystem::path(module).parent_path().parent_path().parent_path();
  const std::string python = "lib" + packages.parent_path().filename().string() + ".so.1.0";
  void* library = dlopen(python.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) return Status(Code::no_adapter, std::string("cannot load Python: ") + dlerror());
  const auto initialize = reinterpret_cast<void (*)(int)>(dlsym(library, "Py_InitializeEx"));
  const auto run = reinterpret_cast<int (*)(const char*)>(dlsym(library, "PyRun_SimpleString"));
  if (!initialize || !run) return Status(Code::no_adapter, python + " is no Python library");
  initialize(0);
  uintptr_t address = 0;
  const std::string code =
      "import ctypes, sys\n"
      "sys.path.insert(0, '" +
      packages.string() +
      "')\n"
      "from wgpudawn import _lib as d\n"
      "ctypes.c_size_t.from_address(" +
      std::to_string(reinterpret_cast<uintptr_t>(&address)) +
      ").value = int(d.ffi.cast('uintptr_t', d.ffi.addressof(d.lib, 'wgpuGetProcAddress')))\n";
  if (run(code.c_str()) != 0 || !address) return Status(Code::no_adapter, "the package wgpudawn cannot be imported");
  return loadWebGpu(reinterpret_cast<WGPUProcGetProcAddress>(address));
}

}  // namespace etwgpu::test
