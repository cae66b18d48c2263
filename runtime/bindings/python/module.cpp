// executorch_webgpu._native: the runtime for Python. python/executorch_webgpu/runtime.py is what users see.
#include "runtime/bindings/python/native_generator.h"
#include "runtime/bindings/python/native_session.h"
#include "runtime/executor/cpu_kernel.h"
#include "runtime/executor/gpu_kernel.h"
#include "runtime/program/sources.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace etwgpu {
namespace {

/// The report on a program without loading weights.
std::string inspect(const std::string& path, const std::vector<std::string>& data_files) {
  SessionConfig config;
  config.inspect_only = true;
  config.source = unwrap(openFileSource(path));
  for (const std::string& file : data_files) config.data_files.push_back(unwrap(openFileSource(file)));
  Task<Result<std::unique_ptr<Session>>> task = Session::load(std::move(config));
  task.start();
  if (!task.done()) throw RuntimeFailure({Code::internal, "reading a file did not end"});
  return unwrap(task.take())->inspectJson();
}

}  // namespace
}  // namespace etwgpu

NB_MODULE(_native, m) {
  using namespace etwgpu;
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const RuntimeFailure& e) {
      const std::string code(codeName(e.status.code()));
      const nb::object type = nb::module_::import_("executorch_webgpu.errors").attr("error_class")(code);
      PyErr_SetString(type.ptr(), e.what());
    }
  });
  nb::class_<NativeSession>(m, "Session")
      .def("run", &NativeSession::run, "method"_a, "inputs"_a)
      .def("reset", &NativeSession::reset)
      .def("tune", &NativeSession::tune, "method"_a, "budget_ms"_a)
      .def("set_adapter_scale", &NativeSession::setAdapterScale, "name"_a, "scale"_a)
      .def("adapter_scales", &NativeSession::adapterScales)
      .def("methods", &NativeSession::methods)
      .def("memory_report", &NativeSession::memory)
      .def("last_stats", &NativeSession::stats)
      .def("capabilities", &NativeSession::capabilities)
      .def("inspect_json", &NativeSession::inspectJson)
      .def("close", &NativeSession::close)
      .def("_destroy_device", &NativeSession::destroyDevice);
  nb::class_<NativeGenerator>(m, "Generator")
      .def(nb::init<NativeSession&, const std::string&>(), "session"_a, "method"_a = "forward", nb::keep_alive<1, 2>())
      .def("begin", &NativeGenerator::begin, "ids"_a, nb::kw_only(), "max_tokens"_a = INT64_MAX,
           "stop_tokens"_a = std::vector<int32_t>(), "temperature"_a = 0.0f, "top_k"_a = 0, "top_p"_a = 1.0f,
           "min_p"_a = 0.0f, "repetition_penalty"_a = 1.0f, "seed"_a = 0, "logprobs"_a = false, "chunk"_a = 0,
           "masked"_a = false, "sliding"_a = false, "sinks"_a = 4, "keep"_a = -1, "draft_tokens"_a = 0,
           "draft_ngram"_a = 3)
      .def("new_sequence", &NativeGenerator::newSequence, nb::rv_policy::take_ownership, nb::keep_alive<0, 1>())
      .def("close", &NativeGenerator::close)
      .def("reset", &NativeGenerator::reset)
      .def_prop_ro("state_bytes", &NativeGenerator::stateBytes)
      .def("allow", &NativeGenerator::allow, "mask"_a)
      .def("next", &NativeGenerator::next)
      .def("end", &NativeGenerator::end)
      .def("abort", &NativeGenerator::abort)
      .def("rollback", &NativeGenerator::rollback, "position"_a)
      .def("save", &NativeGenerator::save)
      .def("restore", &NativeGenerator::restore, "saved"_a)
      .def_prop_ro("finish_reason", &NativeGenerator::finishReason)
      .def_prop_ro("speculation", &NativeGenerator::speculation)
      .def("last_stats", &NativeGenerator::stats)
      .def("set_profiling", &NativeGenerator::setProfiling, "on"_a)
      .def("last_profile", &NativeGenerator::profile)
      .def_prop_ro("position", &NativeGenerator::position)
      .def_prop_ro("capacity", &NativeGenerator::capacity)
      .def_prop_ro("vocabulary", &NativeGenerator::vocabulary)
      .def_prop_ro("tokens", &NativeGenerator::tokens);
  m.def("load", &NativeSession::load, nb::rv_policy::take_ownership, "path"_a, "data_files"_a, "device"_a,
        "get_proc_address"_a, "precision"_a, "activations"_a, "kv_cache"_a, "threads"_a, "max_tier"_a, "memory_cap"_a,
        "disabled_passes"_a, "default_limits"_a, "wide_kernels"_a, "emulate_matrices"_a, "max_binding_bytes"_a,
        "tuning"_a, "adapters"_a, "check_values"_a, "progress"_a.none());
  m.def(
      "check_adapter",
      [](uintptr_t get_proc_address) {
        check(loadWebGpu(reinterpret_cast<WGPUProcGetProcAddress>(get_proc_address)));
        const nb::gil_scoped_release release;
        unwrap(runBlocking(Device::create({})));
      },
      "get_proc_address"_a);
  m.def("inspect", &inspect, "path"_a, "data_files"_a);
  m.def(
      "kernel_names",
      [](const std::string& device) {
        std::vector<std::string> names;
        for (const auto name : device == "cpu" ? cpuKernelNames() : gpuKernelNames()) names.emplace_back(name);
        return names;
      },
      "device"_a);
  m.def("error_codes", [] {
    std::vector<std::string> names;
    for (int i = 0; i < kCodeCount; ++i) names.emplace_back(codeName(Code(i)));
    return names;
  });
}
