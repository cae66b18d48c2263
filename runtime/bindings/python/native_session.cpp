#include "runtime/bindings/python/native_session.h"

#include "runtime/bindings/python/native_generator.h"
#include "runtime/bindings/python/upload_source.h"
#include "runtime/llm/tuner.h"
#include "runtime/program/sources.h"
#include "runtime/webgpu/gpu_backend.h"

namespace etwgpu {
namespace {

template <class T>
T enumFrom(const std::string& what, const std::string& name, std::initializer_list<std::pair<const char*, T>> names) {
  std::string known;
  for (const auto& [n, value] : names) {
    if (name == n) return value;
    known += (known.empty() ? "" : ", ") + std::string(n);
  }
  throw RuntimeFailure({Code::invalid_argument, what + " is '" + name + "', known are " + known});
}

/// What Python says by names.
LoadOptions loadOptions(const std::string& device, const std::string& precision, const std::string& activations,
                        const std::string& kv_cache, int threads, const std::string& max_tier, uint64_t memory_cap,
                        const std::string& disabled_passes, bool wide_kernels, const std::string& tuning) {
  LoadOptions options;
  options.device = enumFrom<DeviceKind>("device", device, {{"webgpu", DeviceKind::webgpu}, {"cpu", DeviceKind::cpu}});
  options.precision = enumFrom<Precision>("precision", precision, {{"f32", Precision::f32}, {"f16", Precision::f16}});
  options.activations = enumFrom<Activations>("activations", activations,
                                              {{"auto", Activations::automatic},
                                               {"exact", Activations::exact},
                                               {"int16", Activations::int16},
                                               {"int8", Activations::int8}});
  options.cache = enumFrom<CacheType>(
      "kv_cache", kv_cache, {{"auto", CacheType::automatic}, {"f32", CacheType::f32}, {"f16", CacheType::f16}});
  options.max_tier = enumFrom<Tier>("max_tier", max_tier,
                                    {{"baseline", Tier::baseline},
                                     {"f16", Tier::f16},
                                     {"subgroups", Tier::subgroups},
                                     {"subgroup_matrix", Tier::subgroup_matrix}});
  options.threads = threads;
  options.memory_cap = memory_cap;
  options.disabled_passes = disabled_passes;
  options.wide_kernels = wide_kernels;
  options.tuning = unwrap(Tuning::parse(tuning));
  return options;
}

}  // namespace

void NativeSession::close() {
  const nb::gil_scoped_release release;  // a task of another thread may hold the locks and call into Python
  const std::lock_guard lock(mutex_);
  if (!device_) {
    session_.reset();
    return;
  }
  const std::lock_guard callbacks(webGpuMutex());
  session_.reset();
  device_.reset();
}

NativeSession* NativeSession::load(const std::string& path, const std::vector<std::string>& data_files,
                                   const std::string& device, uintptr_t get_proc_address, const std::string& precision,
                                   const std::string& activations, const std::string& kv_cache, int threads,
                                   const std::string& max_tier, uint64_t memory_cap, const std::string& disabled_passes,
                                   bool default_limits, bool wide_kernels, int emulate_matrices,
                                   uint64_t max_binding_bytes, const std::string& tuning,
                                   const std::vector<AdapterPath>& adapters, bool check_values, nb::object progress) {
  auto self = std::make_unique<NativeSession>();
  LoadOptions options = loadOptions(device, precision, activations, kv_cache, threads, max_tier, memory_cap,
                                    disabled_passes, wide_kernels, tuning);
  options.check_values = check_values;
  SessionConfig config;
  config.options = options;
  if (options.device == DeviceKind::webgpu) {
    check(loadWebGpu(reinterpret_cast<WGPUProcGetProcAddress>(get_proc_address)));
    DeviceOptions device_options;
    device_options.default_limits = default_limits;
    device_options.emulate_matrices = emulate_matrices;
    device_options.max_binding_bytes = max_binding_bytes;
    nb::gil_scoped_release release;
    self->device_ = unwrap(runBlocking(Device::create(device_options)));
    config.backend = makeGpuBackend(*self->device_, options);
  } else {
    config.backend = makeCpuBackend(options);
  }
  config.source = self->open(path);
  for (const std::string& file : data_files) config.data_files.push_back(self->open(file));
  for (const auto& [name, weights, text, scale] : adapters)
    config.adapters.push_back({name, text, unwrap(openFileSource(weights)), scale});
  nb::python_error* raised = nullptr;  // by the callback: passed on when the load has ended
  if (!progress.is_none()) {
    config.progress = [&](uint64_t done, uint64_t total) {
      nb::gil_scoped_acquire acquire;
      try {
        const nb::object answer = progress(done, total);
        return answer.is_none() || nb::cast<bool>(nb::bool_(answer));
      } catch (nb::python_error& e) {
        raised = new nb::python_error(std::move(e));
        return false;
      }
    };
  }
  Result<std::unique_ptr<Session>> loaded;
  {
    nb::gil_scoped_release release;
    loaded = self->drive(Session::load(std::move(config)));
  }
  if (raised) {
    const std::unique_ptr<nb::python_error> owner(raised);
    throw nb::python_error(std::move(*owner));
  }
  self->session_ = unwrap(std::move(loaded));
  return self.release();
}

nb::list NativeSession::run(const std::string& method, const nb::list& inputs) {
  std::vector<InputArray> arrays;  // keep the bytes alive
  std::vector<Input> converted;
  for (nb::handle h : inputs) converted.push_back(toInput(h, arrays));
  // a generator on the session's own states begins anew: the call may write to them
  for (NativeGenerator* g : generators_)
    if (g->generator() && !g->ownsStates()) {
      if (g->generator()->running()) throw RuntimeFailure{{Code::invalid_argument, "a generation is under way"}};
      g->rollback(0);
    }
  auto result = exclusive([&] { return session().run(method, std::move(converted)); });
  nb::list out;
  for (OutputValue& v : unwrap(std::move(result))) out.append(toPython(std::move(v)));
  return out;
}

nb::dict NativeSession::tune(const std::string& method, double budget_ms) {
  if (!generators_.empty()) throw RuntimeFailure{{Code::invalid_argument, "a generator uses the session"}};
  TuneOptions options;
  options.budget_ms = budget_ms;
  const TuneReport report = unwrap(exclusive([&] { return etwgpu::tune(session(), method, options); }));
  nb::dict d;
  d["tuning"] = report.tuning.text();
  d["token_ms_before"] = report.token_ms_before;
  d["token_ms"] = report.token_ms;
  d["chunk_ms_before"] = report.chunk_ms_before;
  d["chunk_ms"] = report.chunk_ms;
  d["candidates"] = report.candidates;
  return d;
}

void NativeSession::reset() {
  check(exclusive([&] { return session().reset(); }));
}

nb::dict NativeSession::adapterScales() const {
  nb::dict d;
  const AdapterSet& set = session().adapters();
  for (size_t i = 0; i < set.adapters().size(); ++i) d[set.adapters()[i].name.c_str()] = set.scales()[i];
  return d;
}

void NativeSession::free(const Sequence* sequence) {
  const nb::gil_scoped_release release;
  const std::lock_guard lock(mutex_);
  if (!session_) return;
  std::unique_lock<std::recursive_mutex> callbacks;
  if (device_) callbacks = std::unique_lock(webGpuMutex());
  session_->freeSequence(sequence);
}

nb::list NativeSession::methods() const {
  nb::list out;
  for (const MethodSpec& m : session().methods()) {
    nb::dict d;
    d["name"] = m.name;
    d["inputs"] = specs(m.inputs);
    d["outputs"] = specs(m.outputs);
    d["constant"] = m.constant;
    nb::list values;
    for (const OutputValue& v : m.values) values.append(toPython(v));
    d["values"] = values;
    out.append(d);
  }
  return out;
}

nb::dict NativeSession::memory() const {
  const MemoryReport m = session().memory();
  nb::dict d;
  d["weights"] = m.weights;
  d["state"] = m.state;
  d["arena"] = m.arena;
  d["other"] = m.other;
  d["arena_without_reuse"] = m.arena_without_reuse;
  return d;
}

Delegate& NativeSession::soleDelegate(const std::string& method) {
  Delegate* delegate = session().soleDelegate(method);
  if (!delegate) {
    check({Code::invalid_argument, session().findMethod(method) ? "method " + method + " is not one delegate call alone"
                                                                : "no method " + method});
  }
  return *delegate;
}

Session& NativeSession::session() const {
  if (!session_) throw RuntimeFailure({Code::invalid_argument, "the session is closed"});
  return *session_;
}

void NativeSession::destroyDevice() {
  const nb::gil_scoped_release release;
  const std::lock_guard lock(mutex_);
  if (device_) device_->destroy();
}

nb::object NativeSession::capabilities() const {
  if (!device_) return nb::none();
  const GpuCapabilities& c = device_->capabilities();
  nb::dict d;
  d["vendor"] = c.vendor;
  d["architecture"] = c.architecture;
  d["description"] = c.description;
  d["f16"] = c.f16;
  d["subgroups"] = c.subgroups;
  d["subgroup_matrix"] = c.subgroup_matrix;
  d["max_binding_bytes"] = c.max_binding_bytes;
  d["max_buffer_bytes"] = c.max_buffer_bytes;
  return d;
}

std::unique_ptr<DataSource> NativeSession::open(const std::string& path) {
  std::unique_ptr<DataSource> file = unwrap(openFileSource(path));
  if (!device_) return file;
  return std::make_unique<UploadSource>(std::move(file), *device_);
}

void NativeSession::setAdapterScale(const std::string& name, float scale) {
  const nb::gil_scoped_release release;
  const std::lock_guard lock(mutex_);
  for (const NativeGenerator* g : generators_) {
    if (g->generator() && g->generator()->running())
      check({Code::invalid_argument, "an adapter's scale cannot change while a generation is under way"});
  }
  check(session().setAdapterScale(name, scale));
  for (const NativeGenerator* g : generators_)
    if (g->generator()) check(g->generator()->rollback(0));
}

}  // namespace etwgpu
