// wgpuGetProcAddress of Dawn for native programs without Python (C++ tests, benchmarks).
//
// The only prebuilt Dawn for all systems is the Python package wgpudawn, an extension module made by cffi that exports
// nothing but its PyInit function. What that function does is to hand a table of its C functions to cffi. So this
// library stands in for Python: it defines the few Python functions that the module needs to load, calls PyInit and
// takes the table. None of them is called after that, since the table's "direct" functions are plain C.
//
// The module is the file named by ETWGPU_DAWN_MODULE. A process that runs Python must not load this library.
#include <dlfcn.h>
#include <webgpu/webgpu.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

// cffi's tables (parse_c_type.h, stable since version 1.0), as far as they are read here.
struct CffiGlobal {
  const char* name;
  void* python_function;
  void* type;
  void* direct_function;
};
struct CffiContext {
  void* types;
  const CffiGlobal* globals;
  const void* fields;
  const void* struct_unions;
  const void* enums;
  const void* typenames;
  int num_globals;
};

const CffiContext* captured_context = nullptr;

[[noreturn]] void fail(const char* what, const char* detail) {
  std::fprintf(stderr, "Dawn: %s: %s\n", what, detail);
  std::abort();
}

[[noreturn]] void unexpected(const char* function) { fail("unexpected call of a Python function", function); }

using GetProcAddress = WGPUProc (*)(WGPUStringView);

GetProcAddress load() {
  const char* path = std::getenv("ETWGPU_DAWN_MODULE");
  if (!path || !*path) fail("ETWGPU_DAWN_MODULE is not set", "source tools/env.sh");
  void* module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!module) fail("not loaded", dlerror());
  auto init = reinterpret_cast<void* (*)()>(dlsym(module, "PyInit__wgpu_dawn"));
  if (!init) fail("no module of wgpudawn", path);
  init();
  if (!captured_context) fail("cffi's table was not handed over", path);
  for (int i = 0; i < captured_context->num_globals; ++i) {
    const CffiGlobal& global = captured_context->globals[i];
    if (std::strcmp(global.name, "wgpuGetProcAddress") == 0)
      return reinterpret_cast<GetProcAddress>(global.direct_function);
  }
  fail("wgpuGetProcAddress is missing", path);
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED WGPUProc wgpuGetProcAddress(WGPUStringView name) {
  static const GetProcAddress function = load();
  return function(name);
}

// ---- the Python functions that the module refers to ----
// PyInit passes through three of them; it ends by calling a method of _cffi_backend, whose argument is the table.

extern "C" {
// the object None: its reference count, large so that it is never freed, and the rest of a PyObject
__attribute__((visibility("default"))) long _Py_NoneStruct[8] = {1 << 20};
}

EXPORTED void* PyImport_ImportModule(const char*) { return _Py_NoneStruct; }

EXPORTED void* PyLong_FromVoidPtr(void* table) {
  captured_context = static_cast<const CffiContext*>(static_cast<void**>(table)[3]);
  return _Py_NoneStruct;
}

EXPORTED void* PyObject_CallMethod(void*, const char*, const char*, ...) { return _Py_NoneStruct; }

EXPORTED void _Py_Dealloc(void*) {}

EXPORTED int PyArg_UnpackTuple(void*, const char*, long, long, ...) { unexpected("PyArg_UnpackTuple"); }
EXPORTED void* PyErr_Occurred() { unexpected("PyErr_Occurred"); }
EXPORTED void PyEval_RestoreThread(void*) { unexpected("PyEval_RestoreThread"); }
EXPORTED void* PyEval_SaveThread() { unexpected("PyEval_SaveThread"); }
EXPORTED double PyFloat_AsDouble(void*) { unexpected("PyFloat_AsDouble"); }
EXPORTED void* PyLong_FromLong(long) { unexpected("PyLong_FromLong"); }
EXPORTED void* PyLong_FromUnsignedLong(unsigned long) { unexpected("PyLong_FromUnsignedLong"); }
EXPORTED void PyObject_Free(void*) { unexpected("PyObject_Free"); }
EXPORTED void* PyObject_Malloc(size_t) { unexpected("PyObject_Malloc"); }
